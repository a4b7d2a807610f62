// Several nodes side by side: two real daemons, at both ends of the link, and one that is down.
import type { Page } from "@playwright/test";
import { expect, Neighbour, open, test } from "./scene.ts";

let neighbour: Neighbour;
test.beforeAll(async ({ scene }) => {
  neighbour = await Neighbour.make(scene, "top-talkers", "packet-sizes");
});
test.afterAll(async () => neighbour.end());

const row = (page: Page, name: string) => page.getByRole("region", { name: "Nodes" }).getByRole("row").filter({ has: page.getByRole("rowheader", { name }) });
const panel = (page: Page, name: string) => page.getByRole("article", { name, exact: true });
const legend = (page: Page, name: string) => panel(page, name).locator(".legend li");

test("a table of all nodes tells which answer, what runs there, and what is wrong", async ({ page, scene }) => {
  await open(page, scene, "collector");
  await page.getByRole("navigation").getByRole("link", { name: "Nodes" }).click();
  await expect(page).toHaveURL(/#\/nodes$/);
  await expect(row(page, "gw-1")).toContainText("answers");
  await expect(row(page, "gw-1")).toContainText("packet-counter, packet-sizes, sampled-headers, top-talkers");
  await expect(row(page, "gw-2")).toContainText(/zone=east.*answers.*0\.1\.0.*packet-sizes, top-talkers.*\d+\sns/);
  await expect(row(page, "gw-3")).toContainText(/unix:.* can't be reached: .*no answer/);
  // 350 packets arrive at both ends each second, and the host sends some answers.
  const rate = row(page, "gw-2").getByRole("cell").nth(3);
  await expect(rate).toHaveText(/^\d+$/);
  await expect.poll(async () => Number(await rate.textContent())).toBeGreaterThan(200);
  await expect(row(page, "gw-1").getByRole("cell").nth(4)).toHaveText(/^[\d.]+\s[kM]bit\/s$/);
  await expect(page.getByText("3 nodes, 1 without an answer")).toBeVisible();
  const filter = page.getByRole("searchbox", { name: "Filter" });
  await filter.fill("zone=east");
  await expect(page).toHaveURL(/filter=zone%3Deast/);
  await expect(page.getByText("2 of 3 nodes")).toBeVisible();
  await expect(row(page, "gw-1")).toHaveCount(0);
  await filter.fill("zone=east 2");
  await expect(row(page, "gw-3")).toHaveCount(0);
  await page.reload();
  await expect(row(page, "gw-2")).toBeVisible();
  await expect(row(page, "gw-1")).toHaveCount(0);
  await page.getByRole("searchbox", { name: "Filter" }).fill("");
  // The page reports the parts that a probe lacks.
  await scene.api("PUT", "/v1/probes/later", { interface: "later0", wait_for_interface: true, ingress: { source: "#include <twinprobe.h>\nTP_PROBE(count, packet) { return TP_PASS; }\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n", metrics: [] } }, "sock-2");
  await expect(row(page, "gw-2")).toContainText(/later: there is no interface later0.*a probe waits/);
  await scene.api("DELETE", "/v1/probes/later", undefined, "sock-2");
  await expect(row(page, "gw-2")).toContainText("answers");
  await page.getByRole("region", { name: "Nodes" }).getByRole("link", { name: "top-talkers" }).first().click();
  await expect(page).toHaveURL(/#\/nodes\/top-talkers$/);
});

test("a probe of all nodes has charts with one scale and one time, and every choice is in the address", async ({ page, scene }) => {
  await open(page, scene, "collector", "nodes/top-talkers?metric=ingress%2Ftalker");
  await expect(legend(page, "gw-1").first()).toBeVisible();
  await expect(legend(page, "gw-2").first()).toBeVisible();
  await expect(panel(page, "gw-3")).toContainText("can't be reached");
  await expect(panel(page, "gw-3").locator("canvas")).toHaveCount(0);
  // All panels have the same order of keys, so each key has one colour.
  const names = (name: string) => legend(page, name).locator(".name").allTextContents();
  expect((await names("gw-1")).filter((name) => !name.includes("others"))).toEqual((await names("gw-2")).filter((name) => !name.includes("others")));
  expect(await names("gw-1")).toContain("192.0.2.1");
  // The generator sends 200 packets in a second from this address, all to the first node.
  const number = (name: string, key: string) => legend(page, name).filter({ has: page.getByText(key, { exact: true }) }).locator(".number");
  await expect(number("gw-1", "192.0.2.1")).toHaveText(/^(1[5-9]\d|2[0-4]\d)(\.\d+)?\/s$/);
  await expect(number("gw-2", "192.0.2.1")).toHaveText("0/s");
  // Each panel has a link to the console of its node, with the same choices. A node at a Unix
  // socket has no link.
  await expect(page.getByRole("link", { name: "Console of gw-1" })).toHaveAttribute("href", `${scene.url}#/probe/top-talkers?metric=ingress%2Ftalker`);
  await expect(page.getByRole("link", { name: "Console of gw-2" })).toHaveCount(0);
  const field = page.getByRole("combobox", { name: "Field" });
  await field.selectOption("value.bytes");
  await expect(page).toHaveURL(/field=value\.bytes/);
  await expect(number("gw-1", "192.0.2.1")).toHaveText(/bit\/s$/);
  await page.getByRole("combobox", { name: "Top" }).selectOption("1");
  await expect(legend(page, "gw-1")).toHaveText([/^192\.0\.2\.1/, /others/]);
  await page.getByRole("checkbox", { name: "added up" }).check();
  await expect(page).toHaveURL(/sums=on/);
  await expect(number("gw-1", "192.0.2.1")).toHaveText(/iB$/);
  await page.getByRole("combobox", { name: "Time" }).selectOption("15m");
  await expect(page).toHaveURL(/last=15m/);
  await page.reload();
  await expect(legend(page, "gw-1")).toHaveText([/^192\.0\.2\.1.*iB$/, /others/]);
  await expect(page.getByRole("combobox", { name: "Time" })).toHaveValue("15m");
  await expect(page.getByRole("checkbox", { name: "added up" })).toBeChecked();
  await page.goBack();
  await expect(page).not.toHaveURL(/last=15m/);
  // After the choice of another metric, the view offers the fields of that metric.
  await page.getByRole("combobox", { name: "Metric" }).selectOption({ index: 1 });
  await expect(page).not.toHaveURL(/field=/);
  await expect(page.getByText(/one scale and one time/)).toBeVisible();
});

test("a drag in one chart zooms all, and a node that ends says so in its own panel", async ({ page, scene }) => {
  await open(page, scene, "collector", "nodes/top-talkers?metric=ingress%2Ftalker");
  await expect(legend(page, "gw-2").first()).toBeVisible();
  const box = (await panel(page, "gw-1").locator(".u-over").boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.6, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.95, box.y + 40, { steps: 4 });
  await page.mouse.up();
  await expect(page).toHaveURL(/from=.*to=/);
  await expect(page.getByRole("combobox", { name: "Time" })).toHaveValue("chosen");
  await expect(legend(page, "gw-1").first()).toBeVisible();
  await page.getByRole("button", { name: "Show newest" }).click();
  await expect(page).not.toHaveURL(/from=/);
  await neighbour.stop();
  await expect(panel(page, "gw-2")).toContainText("can't be reached");
  await expect(legend(page, "gw-1").first()).toBeVisible();
  await neighbour.start();
  await expect(legend(page, "gw-2").first()).toBeVisible();
});

test("a probe of few nodes, and one of none", async ({ page, scene }) => {
  await open(page, scene, "collector", "nodes/packet-counter");
  await expect(legend(page, "gw-1").first()).toBeVisible();
  await expect(page.getByText("Without this probe: gw-2.")).toBeVisible();
  await page.evaluate(() => (location.hash = "#/nodes/none"));
  await expect(page.getByText("No node has a probe none.")).toBeVisible();
  await page.evaluate(() => (location.hash = "#/nodes/packet-sizes"));
  await expect(legend(page, "gw-2").first()).toBeVisible();
});

test("a narrow screen has one chart beside none", async ({ page, scene }) => {
  await page.setViewportSize({ width: 390, height: 800 });
  await open(page, scene, "collector", "nodes/top-talkers");
  await expect(legend(page, "gw-2").first()).toBeVisible();
  const [one, two] = [(await panel(page, "gw-1").boundingBox())!, (await panel(page, "gw-2").boundingBox())!];
  expect(two.y).toBeGreaterThanOrEqual(one.y + one.height);
  expect(one.x + one.width).toBeLessThanOrEqual(390);
});

test("who may not read windows sees no nodes", async ({ page, scene }) => {
  await open(page, scene, "viewer");
  await expect(page.getByRole("navigation").getByRole("link", { name: "Nodes" })).toHaveCount(0);
  await page.evaluate(() => (location.hash = "#/nodes"));
  await expect(page.getByText("Nodes need the role collector.")).toBeVisible();
});
