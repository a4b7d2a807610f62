// The views of one probe.
import type { Page } from "@playwright/test";
import { frameText } from "../src/data/packet.ts";
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
  // 200 packets a second with 514 bytes on average: 822 kbit/s, as in the overview.
  const rate = legend.first().locator(".number");
  await expect(rate).toHaveText(/^(\d{3}\skbit|1[\d.]*\sMbit)\/s$/);
  await page.getByLabel("in bits").uncheck();
  await expect(rate).toHaveText(/^\d+(\.\d)?\sKiB\/s$/);
  await page.getByRole("combobox", { name: "Top" }).selectOption("1");
  await expect(legend).toHaveCount(2);
  await expect(legend.last()).toContainText("2 others");
  // The view shows the name that the configuration gives to the key.
  await page.getByLabel("address", { exact: true }).uncheck();
  await expect(legend).toHaveCount(1);
  await expect(legend).toContainText("all");
  await page.getByLabel("address", { exact: true }).check();
  // A choice in the legend or below draws one line alone, and the address keeps the choice.
  await legend.first().getByRole("button", { name: "192.0.2.1" }).click();
  await expect(legend).toHaveCount(1);
  await expect(page).toHaveURL(/only=192\.0\.2\.1(&|$)/);
  await page.reload();
  await expect(legend).toHaveText(/^192\.0\.2\.1 ?[\d.]+\sKiB\/s$/);
  const figures = page.getByRole("region", { name: "Largest over these windows" }).getByRole("row");
  await expect(figures).toHaveCount(2);
  await expect(figures.first()).toContainText("p95");
  await page.getByRole("button", { name: /show all/ }).click();
  await expect(legend).toHaveCount(2);
  await page.getByRole("combobox", { name: "Top" }).selectOption("5");
  // A narrow screen shows the same content.
  await page.setViewportSize({ width: 390, height: 844 });
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
  expect(await page.getByRole("region", { name: "Largest over these windows" }).evaluate((region) => region.scrollWidth - region.clientWidth)).toBe(0);
  await figures.getByRole("button", { name: "192.0.2.12" }).click();
  await expect(legend).toHaveText(/^192\.0\.2\.12/);
});

test("what is not a count is shown as it is: without differences, rates and others", async ({ page, scene }) => {
  const lines = [
    "#include <twinprobe.h>", "struct longest { __u64 packets; __u64 bytes_max; };", "TP_HASH(longest, tp_ip, struct longest, 16);",
    "TP_PROBE(count, packet) { struct longest *one; tp_ip from; tp_parse(packet); if (!packet->version) return TP_PASS; from = tp_source(packet);",
    "one = tp_get(longest, &from); if (one) { tp_add(&one->packets, 1); tp_max(&one->bytes_max, tp_length(packet)); } return TP_PASS; }",
    'char LICENSE[] SEC("license") = "GPL";',
  ];
  const metrics = [{ name: "sender", map: "longest", snapshot: true }];
  const config = { interface: "server0", ingress: { source: lines.join("\n"), metrics }, window: { interval: "1s" } };
  expect(await scene.api("PUT", "/v1/probes/longest", config)).toMatchObject({ status: 201 });
  await open(page, scene, "collector", "probe/longest/chart?field=value.bytes_max&top=1");
  const legend = page.locator(".legend li");
  await expect(legend).toHaveCount(1);
  // The longest frames of each sender have 1242 bytes, in each window.
  await expect(legend.locator(".number")).toHaveText(/^1\.21\sKiB$/);
  await expect(page.getByText("bytes, the largest of each window")).toBeVisible();
  for (const name of ["per second", "in bits", "since the beginning"]) await expect(page.getByLabel(name)).toHaveCount(0);
  await page.getByLabel("Field").selectOption("packets");
  await expect(legend).toHaveCount(2);
  await expect(legend.first().locator(".number")).toHaveText(/\/s$/);
  // The sum since the beginning is that of the newest window, not the sum of all windows.
  await page.getByLabel("since the beginning").check();
  const total = page.getByRole("region", { name: "Largest over these windows" }).locator("tbody tr").first().locator("td").first();
  const newest = legend.first().locator(".number");
  await expect.poll(async () => (await total.textContent()) === (await newest.textContent())).toBe(true);
  await scene.api("DELETE", "/v1/probes/longest");
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
  // Sums have no rate. Numbers that each window resets have one.
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
  await expect(rows.first()).toContainText(/32\sB to 63\sB/);
  // Frames have 60, 242 and 1242 bytes, a third each.
  const full = rows.filter({ hasNot: page.getByRole("cell", { name: "0", exact: true }) });
  await expect(full).toHaveCount(3);
  const canvas = page.getByRole("img", { name: /Heat map/ });
  await expect(canvas).toBeVisible();
  await canvas.scrollIntoViewIfNeeded();
  const box = (await canvas.boundingBox())!;
  await page.mouse.move(box.x + box.width - 4, box.y + 4);
  await expect(page.locator(".heatmap figcaption")).toContainText(/1\sKiB to 2\sKiB: \d+/);
  await page.goto(`${scene.url}#/probe/top-talkers/histogram`);
  await page.getByLabel("Entries by").selectOption("bytes");
  await expect(page.locator("table.histogram tbody tr").first()).toBeVisible();
});

test("a histogram has percentiles, of the newest window and over time", async ({ page, scene }) => {
  await open(page, scene, "collector", "probe/packet-sizes/histogram");
  // Frames have 60, 242 and 1242 bytes, a third each: the range of 242 has the median, the range of 1242 p95. The numbers are those of
  // documents and of the command line.
  const figure = (name: string) => page.locator(".figure").filter({ hasText: name }).locator("dd");
  await expect(figure("p50")).toHaveText(/^255\sB$/);
  await expect(figure("p95")).toHaveText(/^2\sKiB$/);
  await expect(figure("p99")).toHaveText(/^2\sKiB$/);
  const legend = page.locator(".chart .legend li");
  await expect(legend).toHaveCount(3);
  await expect(legend.nth(1)).toContainText(/p95\s*2\sKiB/);
});

test("counts of a histogram have no unit, and its slots are ranges", async ({ page, scene }) => {
  for (const view of ["table", "chart"]) {
    await open(page, scene, "collector", `probe/packet-sizes/${view}`);
    await page.getByLabel("Metric").selectOption("ingress/packet_size_bytes");
    const row = page.locator("tbody tr").filter({ hasText: /32\sB to 63\sB/ });
    await expect(row).toHaveCount(1);
    await expect(row.locator("td.number:not(.key)").first()).toHaveText(/^[1-9][\d.]*\s?[kM]?$/);
  }
});

test("the first bytes of packets are decoded", () => {
  const frame = (kind: string, rest: string) => `0x020000000001020000000002${kind}${rest}`;
  const zeros = (bytes: number) => "00".repeat(bytes);
  const tcp = `45000028000040004006${zeros(2)}c0000201c0000202` + `c35001bb${zeros(8)}5012${zeros(6)}`;
  expect(frameText(frame("0800", tcp))).toBe("TCP 192.0.2.1:50000 → 192.0.2.2:443 SYN ACK");
  expect(frameText(frame("81000005", `0800${tcp}`))).toBe("VLAN 5 TCP 192.0.2.1:50000 → 192.0.2.2:443 SYN ACK");
  const v6 = `6000000000081140` + `20010db8${zeros(11)}01` + `fe80${zeros(13)}02`;
  expect(frameText(frame("86dd", `${v6}00350035${zeros(4)}`))).toBe("UDP [2001:db8::1]:53 → [fe80::2]:53");
  const arp = `0001080006040001` + `020000000002c0000202` + `${zeros(6)}c0000201`;
  expect(frameText(frame("0806", arp))).toBe("ARP who has 192.0.2.1, asks 192.0.2.2");
  // Later fragments have no ports. Bytes that are not a frame are shown as they are.
  expect(frameText(frame("0800", `4500002800000010401100${"00"}c0000201c0000202${zeros(20)}`))).toBe("UDP 192.0.2.1 → 192.0.2.2 fragment");
  expect(frameText(frame("1234", zeros(60)))).toBeNull();
  expect(frameText("abcd")).toBeNull();
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
  // The view shows the packet's headers in words, and its bytes in hex on request.
  await page.getByLabel("Filter").fill("192.0.2.1:");
  await expect(rows.first()).toContainText(/UDP 192\.0\.2\.1:\d+ → 192\.0\.2\.2:500[01]/);
  await page.getByLabel("bytes in hex").check();
  await expect(rows.first()).not.toContainText("UDP 192.0.2.1");
  await expect(rows.first()).toContainText(/[0-9a-f]{80}/);
  await page.getByLabel("bytes in hex").uncheck();
  // On a narrow screen the whole table is visible.
  await page.setViewportSize({ width: 390, height: 844 });
  await expect(rows.first().locator("[data-label='interface']")).toBeVisible();
  expect(await page.getByRole("region", { name: "Events" }).evaluate((region) => region.scrollWidth - region.clientWidth)).toBe(0);
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
  // On a narrow screen the remarks have room as well.
  await page.setViewportSize({ width: 390, height: 844 });
  const remarks = row.locator("[data-label='Remarks']");
  await expect(remarks).toContainText("approximate");
  const box = (await remarks.boundingBox())!;
  expect(box.x + box.width).toBeLessThanOrEqual(390);
  expect(box.height).toBeLessThan(200);
});

test("window settings, revisions, their difference, and the way back", async ({ page, scene }) => {
  await scene.deploy("vlan", { window: { interval: "1s" } });
  await open(page, scene, "operator", "probe/vlan/windows");
  await page.getByLabel("Interval").fill("2x");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("alert")).toContainText("window.interval");
  await page.getByLabel("Interval").fill("2s");
  await page.getByLabel("Retain windows").fill("77");
  await page.getByLabel("Reason for the change").fill("longer windows for the archive");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByText("revision 2")).toBeVisible();
  expect((await config_of(scene, "vlan")).window).toEqual({ interval: "2s", retain: 77 });
  await page.getByRole("tab", { name: "Revisions" }).click();
  const why = (revision: string) => page.getByRole("region", { name: "Revisions" }).getByRole("row").filter({ has: page.getByRole("rowheader", { name: revision }) });
  await expect(why("2 deployed")).toContainText("longer windows for the archive");
  await expect(why("1")).toContainText("none given");
  await expect(page.locator("tr.added")).toContainText(['"interval": "2s"', '"retain": 77']);
  await expect(page.locator("tr.removed")).toContainText(['"interval": "1s"']);
  await page.getByRole("button", { name: "Roll back… to revision 1" }).click();
  await page.getByRole("dialog").press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await page.getByRole("button", { name: "Roll back… to revision 1" }).click();
  await page.getByRole("dialog").getByLabel("Reason for the change").fill("was not needed");
  await page.getByRole("button", { name: "Roll back", exact: true }).click();
  await expect(page.getByText("deployed again, as revision 3")).toBeVisible();
  await expect(why("3 deployed")).toContainText("was not needed");
  expect((await config_of(scene, "vlan")).window).toEqual({ interval: "1s" });
  const changes = page.getByRole("region", { name: "History" }).getByRole("row");
  await expect(changes.nth(1)).toContainText("was not needed");
  await expect(changes.last()).toContainText("created");
  // The chart marks the changes.
  await page.getByRole("tab", { name: "Chart" }).click();
  const marked = page.getByRole("list", { name: "Changes in this time" }).getByRole("listitem");
  await expect(marked.last()).toContainText("replaced by token:operator: was not needed");
  await page.getByRole("button", { name: "Delete…" }).click();
  await page.getByRole("dialog").getByLabel("Reason for the change").fill("found it");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  expect((await scene.api("GET", "/v1/probes/vlan")).status).toBe(404);
  // The changes of all probes include those of a removed probe.
  await page.getByRole("navigation").getByRole("link", { name: "Changes" }).click();
  await page.getByLabel("Filter").fill("vlan removed");
  await expect(page.getByRole("region", { name: "History" }).locator("tbody tr").first()).toContainText("found it");
  const { history } = JSON.parse((await scene.api("GET", "/v1/probes/vlan/history")).text) as { history: { change: string; message?: string }[] };
  expect(history[history.length - 1]).toMatchObject({ change: "removed", message: "found it" });
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

test("programs of a file that do not run are named", async ({ page, scene }) => {
  const text = [
    "#include <linux/bpf.h>", "#include <bpf/bpf_helpers.h>", "__u64 packets;",
    'SEC("tc") int count(struct __sk_buff *skb) { __sync_fetch_and_add(&packets, 1); return 0; }',
    'SEC("xdp") int drop(struct xdp_md *ctx) { return XDP_DROP; }', 'SEC("tc") int later(struct __sk_buff *skb) { return 0; }', 'char LICENSE[] SEC("license") = "GPL";',
  ];
  const ingress = { hook: "tc", source: text.join("\n"), entry: "count", metrics: [{ name: "packets", map: ".bss:packets" }] };
  expect((await scene.api("PUT", "/v1/probes/chosen", { interface: "server0", ingress })).status).toBe(201);
  await open(page, scene, "viewer", "probe/chosen/attachment");
  const row = page.getByRole("row", { name: /^ingress count/ });
  await expect(row).toContainText("left out: drop, later");
  await open(page, scene, "viewer", "probe/top-talkers/attachment");
  await expect(page.getByRole("row", { name: /^ingress/ }).first()).toBeVisible();
  await expect(page.getByText("left out")).toHaveCount(0);
  await scene.api("DELETE", "/v1/probes/chosen");
});
