// The overview, and the data that the daemon sends for it.
import { execFileSync } from "node:child_process";
import { expect, listed, open, test } from "./scene.ts";

// The page may request a window of a deleted probe.
test.use({ expected: [404] });

test("it opens on traffic: bits, packets and drops of each interface, also where no probe runs", async ({ page, scene }) => {
  await open(page, scene, "operator");
  const card = (name: string) => page.locator("article.interface").filter({ has: page.getByRole("heading", { name }) });
  const server = card("server0");
  await expect(server).toContainText("4 probes");
  await expect(server.locator("polyline")).toHaveCount(2);
  const cells = server.getByRole("row", { name: /^in/ }).getByRole("cell");
  // 350 packets arrive each second, with 514 bytes on average: 1.4 Mbit/s.
  await expect.poll(async () => Number(await cells.nth(1).textContent())).toBeGreaterThan(200);
  await expect(cells.nth(0)).toHaveText(/^(\d{3}\skbit|[1-9][\d.]*\sMbit)\/s$/);
  await expect(cells.nth(2)).toHaveText("0");
  await expect(card("lo")).toContainText("no probe");
  // From now on a third of the packets is longer than the interface accepts.
  execFileSync("ip", ["link", "set", "server0", "mtu", "500"]);
  try {
    await expect(cells.nth(2)).toHaveText(/^[1-9][\d.]*$/);
    expect(Number(await cells.nth(2).textContent())).toBeLessThan(1000);
  } finally {
    execFileSync("ip", ["link", "set", "server0", "mtu", "1500"]);
  }
});

test("the largest of what runs stands below, and leads to its chart", async ({ page, scene }) => {
  await open(page, scene, "collector");
  const card = page.locator("article").filter({ has: page.getByRole("link", { name: "top-talkers" }) });
  const rows = card.locator("tbody tr");
  await expect(rows).toHaveCount(3);
  await expect(rows.first()).toContainText("192.0.2.1");
  // A sender sends 200 packets in a second.
  await expect(rows.first().getByRole("cell").first()).toHaveText(/^(1[5-9]\d|2[0-4]\d)(\.\d+)?\/s$/);
  await expect(rows.first().getByRole("cell").nth(1)).toHaveText(/^[\d.]+\s[kM]bit\/s$/);
  await card.getByRole("link", { name: "top-talkers" }).click();
  await expect(page.getByLabel("Metric")).toHaveValue("ingress/talker");
});

test("an address leads to all that the newest windows say of it, and from there to its chart", async ({ page, scene }) => {
  await open(page, scene, "collector");
  await page.locator("article").filter({ has: page.getByRole("link", { name: "top-talkers" }) }).getByRole("link", { name: "192.0.2.11" }).click();
  await expect(page.getByRole("heading", { name: "192.0.2.11", level: 1 })).toBeVisible();
  const rows = page.getByRole("region", { name: "top-talkers ingress talker" }).locator("tbody tr");
  // 192.0.2.11 sends 100 packets in a second. The packets of 192.0.2.1 and 192.0.2.12 are not shown.
  await expect(rows).toHaveCount(1);
  await expect(rows.locator("[data-label='packets']")).toHaveText(/^([6-9]\d|1[0-4]\d)(\.\d+)?\/s$/);
  // The view also finds an address by its beginning.
  await page.getByRole("searchbox", { name: "Find" }).fill("192.0.2.");
  await page.getByRole("searchbox", { name: "Find" }).press("Enter");
  await expect(rows).toHaveCount(3);
  await rows.getByRole("link", { name: "192.0.2.12" }).click();
  await expect(page.locator(".legend li")).toHaveText(/^192\.0\.2\.12/);
  await page.getByRole("searchbox", { name: "Find" }).fill("198.51.100.7");
  await page.getByRole("searchbox", { name: "Find" }).press("Enter");
  await expect(page.getByText("No key of these windows is 198.51.100.7")).toBeVisible();
});

test("an interface has its traffic over time, with figures, and its probes", async ({ page, scene }) => {
  await open(page, scene, "viewer");
  await page.locator("article.interface").getByRole("link", { name: "server0" }).click();
  const row = page.getByRole("region", { name: "In this time" }).locator("tbody tr").filter({ hasText: "packets per second" }).first();
  await expect(page.getByRole("figure", { name: "bits per second of server0" }).locator(".legend li")).toHaveCount(2);
  // 350 packets arrive each second.
  await expect(row.locator("[data-label='mean']")).toHaveText(/^[2-5]\d\d(\.\d+)?\/s$/);
  for (const name of ["newest", "p95", "largest"]) await expect(row.locator(`[data-label='${name}']`)).toHaveText(/^[1-9][\d.]*\s?k?\/s$/);
  await expect(listed(page, "top-talkers")).toBeVisible();
  await page.goto(`${scene.url}#/interface/none0`);
  await expect(page.getByText("There is no interface of this name")).toBeVisible();
});

test("who may not read windows gets the traffic, and asks for none", async ({ page, scene }) => {
  const requests: string[] = [];
  page.on("request", (request) => requests.push(new URL(request.url()).pathname));
  await open(page, scene, "viewer");
  await expect(page.locator("article.interface").first()).toContainText(/[kM]bit/);
  await expect(page.locator("article")).toHaveCount(await page.locator("article.interface").count());
  expect(requests.filter((path) => path.startsWith("/v1/probes"))).toEqual([]);
});

test("all probes with their state, traffic, cost and windows", async ({ page, scene }) => {
  await open(page, scene, "viewer");
  const row = page.getByRole("region", { name: "Probes" }).getByRole("row").filter({ hasText: "top-talkers" });
  await expect(row).toContainText("running");
  await expect(row).toContainText("server0");
  await expect(row).toContainText(/\d+\sns/);
  // 350 packets arrive each second, and the host sends some answers.
  const rate = row.getByRole("cell").nth(2);
  await expect(rate).toHaveText(/^\d+$/);
  await expect.poll(async () => Number(await rate.textContent())).toBeGreaterThan(200);
  expect(Number(await rate.textContent())).toBeLessThan(2000);
});

test("it is live without asking again", async ({ page, scene }) => {
  await open(page, scene, "viewer");
  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  // This test needs another probe, because the scene's probes have reached their limits, and the number of
  // their windows no longer changes.
  await scene.deploy("vlan", { window: { interval: "1s", retain: 10_000 } });
  await expect(listed(page, "vlan")).toBeVisible();
  const cell = page.getByRole("row").filter({ hasText: "vlan" }).getByRole("cell").nth(5);
  const before = await cell.textContent();
  await expect(cell).not.toHaveText(before!);
  await scene.api("DELETE", "/v1/probes/vlan");
  await expect(listed(page, "vlan")).toHaveCount(0);
  expect(requests).toEqual([]);
});

// A window may be closed while its probe is deleted. The daemon then sends the window without `windows`.
test("a window that is told after its probe was deleted changes nothing", async ({ page, scene }) => {
  const [entry] = JSON.parse((await scene.api("GET", "/v1/probes/packet-counter/windows")).text).windows;
  let ended = 0;
  await page.route("**/v1/changes", async (route) => {
    const probe = JSON.parse((await scene.api("GET", "/v1/probes/packet-counter")).text);
    const tell = (event: string, data: unknown) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
    const hello = { node: "gw-1", version: "0", who: "test", role: "collector" };
    const told = [["hello", hello], ["probe", probe], ["listed", {}], ["window", { probe: probe.name, window: entry }]] as const;
    await route.fulfill({ status: 200, contentType: "text/event-stream", body: told.map(([event, data]) => tell(event, data)).join("") });
    ended++;
  }, { times: 1 });
  await open(page, scene, "collector");
  expect(ended).toBe(1);
  await expect(listed(page, "top-talkers")).toBeVisible();
});

test("what is wrong stands above: what is not attached, and a map without room", async ({ page, scene }) => {
  await open(page, scene, "collector");
  await expect(page.locator("article").first()).toBeVisible();
  await expect(page.getByRole("heading", { name: "Alerts" })).toHaveCount(0);
  await scene.deploy("vlan", { interface: "later0", wait_for_interface: true });
  const alerts = page.locator(".alerts li");
  await expect(alerts.filter({ hasText: "vlan" })).toContainText("is not attached at later0: there is no interface later0 yet");
  // Three senders, and a map with room for two.
  const lines = [
    "#include <twinprobe.h>", "TP_HASH(senders, tp_ip, struct tp_counters, 2);", "TP_PROBE(count, packet) { tp_ip from; tp_parse(packet);",
    "if (!packet->version) return TP_PASS; from = tp_source(packet); tp_count(senders, &from, tp_length(packet)); return TP_PASS; }",
    'char LICENSE[] SEC("license") = "GPL";',
  ];
  const metrics = [{ name: "sender", map: "senders", snapshot: true, init: true }];
  const tiny = { interface: "server0", ingress: { source: lines.join("\n"), metrics }, window: { interval: "1s" } };
  expect((await scene.api("PUT", "/v1/probes/tiny", tiny)).status).toBe(201);
  await expect(alerts.filter({ hasText: "tiny" })).toContainText(/ingress sender is not complete: \d+ found no room in its map/);
  // The page of the probe shows the same problem.
  await alerts.filter({ hasText: "tiny" }).getByRole("link", { name: "tiny" }).click();
  await expect(page.getByRole("alert")).toContainText("ingress sender is not complete");
  await page.goBack();
  await scene.api("DELETE", "/v1/probes/tiny");
  await scene.api("DELETE", "/v1/probes/vlan");
  await expect(alerts).toHaveCount(0);
});

test("long keys stay within their cards, and the page within the screen", async ({ page, scene }) => {
  await scene.deploy("flow-features", { window: { interval: "1s" } });
  await open(page, scene, "collector");
  const card = page.locator("article").filter({ has: page.getByRole("link", { name: "flow-features" }) });
  await expect(card.locator("tbody tr").first()).toContainText("192.0.2.");
  for (const width of [1440, 390]) {
    await page.setViewportSize({ width, height: 800 });
    await expect.poll(() => card.evaluate((card) => card.querySelector("table")!.getBoundingClientRect().right <= card.getBoundingClientRect().right)).toBe(true);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  }
  await scene.api("DELETE", "/v1/probes/flow-features");
});

test("a narrow screen shows the cost of each probe", async ({ page, scene }) => {
  await page.setViewportSize({ width: 390, height: 800 });
  await open(page, scene, "viewer");
  const cost = page.getByRole("region", { name: "Probes" }).locator("tr").filter({ hasText: "top-talkers" }).locator("[data-label='Cost per packet']");
  await cost.scrollIntoViewIfNeeded();
  await expect(cost).toHaveText(/\d+\sns/);
  const box = (await cost.boundingBox())!;
  expect(box.x).toBeGreaterThanOrEqual(0);
  expect(box.x + box.width).toBeLessThanOrEqual(390);
  expect(await cost.evaluate((cell) => getComputedStyle(cell, "::before").content)).toContain("Cost per packet");
});

test("a probe that waits says for what", async ({ page, scene }) => {
  await open(page, scene, "viewer");
  await scene.deploy("vlan", { interface: "later0", wait_for_interface: true });
  const row = page.getByRole("row").filter({ hasText: "vlan" });
  await expect(row).toContainText("waiting");
  await expect(row).toContainText("no interface later0");
  await scene.api("DELETE", "/v1/probes/vlan");
});

test("capabilities", async ({ page, scene }) => {
  await open(page, scene, "viewer", "capabilities");
  const row = page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: "percpu_hash", exact: true }) });
  await expect(row).toContainText(/batch|iterative/);
  await expect(page.getByText("Debian clang")).toBeVisible();
});
