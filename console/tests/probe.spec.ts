// The views of one probe.
import type { Page } from "@playwright/test";
import { expect, open, test } from "./scene.ts";

const numbers = async (page: Page, column: number) =>
  (await page.locator("tbody tr").evaluateAll((rows, column) => rows.map((row) => row.children[column]!.textContent!), column)).map((text) => Number(text.replace(/\s/g, "")));

test("charts have a line for each key, fields and rates, and grow with each window", async ({ page, scene }) => {
  await open(page, scene, "collector", "probe/top-talkers");
  const legend = page.locator(".legend li");
  await expect(legend).toHaveCount(3);
  await expect(legend.first()).toContainText("192.0.2.1");
  await expect(legend.first()).toContainText(/\d\/s/);
  // The first sender sends 200 packets a second, twice as many as the second one.
  await expect.poll(async () => Number.parseFloat((await legend.first().locator(".number").textContent())!)).toBeGreaterThan(120);
  const count = page.getByText(/windows?, \d+ to/);
  const before = await count.textContent();
  await expect(count).not.toHaveText(before!);
  await page.getByLabel("Field").selectOption("bytes");
  await expect(legend.first()).toContainText("KiB/s");
  await page.getByRole("combobox", { name: "Top" }).selectOption("1");
  await expect(legend).toHaveCount(2);
  await expect(legend.last()).toContainText("2 others");
  await page.getByLabel("key").uncheck();
  await expect(legend).toHaveCount(1);
  await expect(legend).toContainText("all");
});

test("tables are sorted, filtered and shown as one wishes, and exactly what the daemon has", async ({ page, scene }) => {
  await open(page, scene, "collector", "probe/top-talkers/table");
  await expect(page.getByLabel("Window").locator("option").nth(1)).toBeAttached();
  const seq = await page.getByLabel("Window").locator("option").nth(1).getAttribute("value");
  await page.getByLabel("Window").selectOption(seq!);
  await page.getByLabel("Numbers").selectOption("exact");
  const document = JSON.parse((await scene.api("GET", `/v1/probes/top-talkers/windows/${seq}`)).text);
  const entries: { key: string; value: { packets: number; bytes: number } }[] = document.ingress.talker.entries;
  const sorted = entries.map((entry) => entry.value.packets).sort((a, b) => b - a);
  expect(await numbers(page, 1)).toEqual(sorted);
  await page.getByRole("button", { name: "packets" }).click();
  await expect(page.getByRole("columnheader", { name: "packets" })).toHaveAttribute("aria-sort", "ascending");
  expect(await numbers(page, 1)).toEqual(sorted.reverse());
  await page.getByLabel("Filter").fill("192.0.2.11");
  await expect(page.locator("tbody tr")).toHaveCount(1);
  await page.getByLabel("Filter").fill(`packets>=${Math.max(...sorted)}`);
  await expect(page.locator("tbody tr")).toHaveCount(1);
  await page.getByLabel("Filter").fill("nothing-like-this");
  await expect(page.locator("tbody tr")).toHaveCount(0);
  await page.getByLabel("Filter").fill("");
  await page.getByLabel("Numbers").selectOption("hex");
  await expect(page.locator("tbody td").nth(1)).toHaveText(/^0x/);
  // Sums have no rate; what is reset with each window has one.
  await open(page, scene, "collector", "probe/packet-counter/table");
  await page.getByLabel("Numbers").selectOption("rate");
  await expect(page.locator("tbody td").nth(1)).toHaveText(/\/s$/);
});

test("numbers beyond 53 bits are exact", async ({ page, scene }) => {
  await page.route(/\/windows\/\d+$/, async (route) => {
    const answer = await route.fetch();
    const text = (await answer.text()).replace(/"packets":\d+/, '"packets":18446744073709551615');
    await route.fulfill({ response: answer, body: text });
  });
  await open(page, scene, "collector", "probe/top-talkers/table");
  await page.getByLabel("Numbers").selectOption("exact");
  await expect(page.locator("tbody tr").filter({ hasText: /18.446.744.073.709.551.615/ })).toHaveCount(1);
  await page.unrouteAll({ behavior: "ignoreErrors" });
});

test("histograms of one window, and over time", async ({ page, scene }) => {
  await open(page, scene, "collector", "probe/packet-sizes/histogram");
  const rows = page.locator("table.histogram tbody tr");
  await expect(rows.first()).toContainText(/32\sB to 64\sB/);
  // Frames have 60, 242 and 1242 bytes, as many of each.
  const full = rows.filter({ hasNot: page.getByRole("cell", { name: "0", exact: true }) });
  await expect(full).toHaveCount(3);
  const canvas = page.getByRole("img", { name: /Heat map/ });
  await expect(canvas).toBeVisible();
  const box = (await canvas.boundingBox())!;
  await page.mouse.move(box.x + box.width - 4, box.y + 4);
  await expect(page.locator(".heatmap figcaption")).toContainText(/1\sKiB to 2\sKiB: \d+/);
  await page.goto(`${scene.url}#/probe/top-talkers/histogram`);
  await page.getByLabel("Entries by").selectOption("bytes");
  await expect(page.locator("table.histogram tbody tr").first()).toBeVisible();
});

test("counts of a histogram have no unit, and its slots are ranges", async ({ page, scene }) => {
  for (const view of ["table", "chart"]) {
    await open(page, scene, "collector", `probe/packet-sizes/${view}`);
    await page.getByLabel("Metric").selectOption("ingress/packet_size_bytes");
    const row = page.locator("tbody tr").filter({ hasText: /32\sB to 64\sB/ });
    await expect(row).toHaveCount(1);
    await expect(row.locator("td.number:not(.key)")).toHaveText(/^[1-9][\d.]*\s?[kM]?$/);
  }
});

test("events as they come", async ({ page, scene }) => {
  const config = { ingress: { ...(await config_of(scene, "sampled-headers")).ingress, defines: { SAMPLE: "10" } } };
  await scene.deploy("sampled-headers", { ...config, window: { interval: "1s" } });
  await open(page, scene, "collector", "probe/sampled-headers/events");
  const rows = page.locator("tbody tr");
  await expect(rows.first()).toContainText("server0");
  const received = page.getByText(/events since/);
  const before = await received.textContent();
  await expect(received).not.toHaveText(before!);
  await page.getByLabel("Filter").fill("no-such-text");
  await expect(page.getByText("No event matches")).toBeVisible();
});

const config_of = async (scene: any, name: string) => JSON.parse((await scene.api("GET", `/v1/probes/${name}`)).text).config;

test("attachment: interfaces, programs, cost", async ({ page, scene }) => {
  await open(page, scene, "viewer", "probe/top-talkers/attachment");
  const row = page.getByRole("region", { name: "Interfaces" }).getByRole("row").nth(1);
  await expect(row).toContainText("server0");
  await expect(row).toContainText("ingress");
  await expect(row.getByRole("cell").nth(4)).toHaveText(/^[\d.]+$/);
  await expect(page.getByText("count_talkers").first()).toBeVisible();
});

test("window settings, revisions, their difference, and the way back", async ({ page, scene }) => {
  await scene.deploy("vlan", { window: { interval: "1s" } });
  await open(page, scene, "operator", "probe/vlan/windows");
  await page.getByLabel("Interval").fill("2x");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("alert")).toContainText("window.interval");
  await page.getByLabel("Interval").fill("2s");
  await page.getByLabel("Retain windows").fill("77");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByText("revision 2")).toBeVisible();
  expect((await config_of(scene, "vlan")).window).toEqual({ interval: "2s", retain: 77 });
  await page.getByRole("tab", { name: "Revisions" }).click();
  await expect(page.locator("tr.added")).toContainText(['"interval": "2s"', '"retain": 77']);
  await expect(page.locator("tr.removed")).toContainText(['"interval": "1s"']);
  await page.getByRole("button", { name: "Roll back… to revision 1" }).click();
  await page.getByRole("dialog").press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await page.getByRole("button", { name: "Roll back… to revision 1" }).click();
  await page.getByRole("button", { name: "Roll back", exact: true }).click();
  await expect(page.getByText("deployed again, as revision 3")).toBeVisible();
  expect((await config_of(scene, "vlan")).window).toEqual({ interval: "1s" });
  await page.getByRole("button", { name: "Delete…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  expect((await scene.api("GET", "/v1/probes/vlan")).status).toBe(404);
});
// A window may be closed while its probe is being deleted.
test.use({ expected: [422, 404] });

test("a window is closed by hand where no clock does it", async ({ page, scene }) => {
  await scene.deploy("packet-counter", {}, "by-hand");
  await open(page, scene, "collector", "probe/by-hand");
  await expect(page.getByText("No window was closed yet")).toBeVisible();
  await page.getByRole("button", { name: "Close window now" }).click();
  await page.getByRole("tab", { name: "Table" }).click();
  await expect(page.getByText(/Window 1:/)).toBeVisible();
  await scene.api("DELETE", "/v1/probes/by-hand");
});
