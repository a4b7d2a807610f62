// The address has the user's choices: they survive a reload, can be shared, and the browser's back button undoes them.
import { expect, open, test } from "./scene.ts";

const list = async (scene: any, probe: string): Promise<{ seq: number; start: string; end: string }[]> =>
  JSON.parse((await scene.api("GET", `/v1/probes/${probe}/windows`)).text).windows;

test("choices of a chart are in the address, and the browser's button takes them back", async ({ page, scene }) => {
  await open(page, scene, "collector", "probe/top-talkers");
  const legend = page.locator(".legend li");
  await page.getByLabel("Field").selectOption("bytes");
  await page.getByLabel("address", { exact: true }).uncheck();
  await page.getByLabel("per second").uncheck();
  await expect(page).toHaveURL(/field=value\.bytes/);
  await page.reload();
  await expect(page.getByLabel("Field")).toHaveValue("value.bytes");
  await expect(page.getByLabel("per second")).not.toBeChecked();
  await expect(legend).toHaveCount(1);
  await page.goBack();
  await expect(page.getByLabel("per second")).toBeChecked();
  await page.goBack();
  await expect(legend).toHaveCount(3);
  await page.goBack();
  await expect(page.getByLabel("Field")).toHaveValue("value.packets");
  await expect(page).not.toHaveURL(/field/);
  // Another view of the probe keeps the metric, and going back leads to the chart.
  await page.getByRole("tab", { name: "Table" }).click();
  await expect(page).toHaveURL(/top-talkers\/table/);
  await page.goBack();
  await expect(page.getByRole("tab", { name: "Chart" })).toHaveAttribute("aria-selected", "true");
});

test("an address shows a table as it was sorted and filtered", async ({ page, scene }) => {
  await open(page, scene, "collector", "probe/top-talkers/table?filter=192.0.2.1&sort=value.bytes");
  await expect(page.getByLabel("Filter")).toHaveValue("192.0.2.1");
  await expect(page.getByRole("columnheader", { name: "bytes" })).toHaveAttribute("aria-sort", "ascending");
  await page.getByRole("button", { name: "packets" }).click();
  await expect(page).toHaveURL(/sort=-value\.packets/);
  const before = page.url();
  await page.getByLabel("Filter").fill("192.0.2.12");
  await expect(page.locator("tbody tr")).toHaveCount(1);
  expect(page.url()).not.toBe(before);
  // Typed text makes no step in the browser's history.
  await page.goBack();
  await expect(page.getByRole("columnheader", { name: "bytes" })).toHaveAttribute("aria-sort", "ascending");
});

test("a zoom stays while windows come in, and is undone", async ({ page, scene }) => {
  await open(page, scene, "collector", "probe/top-talkers");
  const count = page.getByText(/windows?, \d+ to/);
  await expect.poll(async () => Number.parseInt((await count.textContent())!)).toBeGreaterThan(8);
  // Each new window redraws the chart.
  let box = { x: 0, y: 0, width: 0, height: 0 };
  await expect.poll(async () => (box = (await page.locator(".chart .u-over").boundingBox()) ?? box).width).toBeGreaterThan(0);
  await page.mouse.move(box.x + box.width * 0.25, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.75, box.y + 60, { steps: 5 });
  await page.mouse.up();
  await expect(page).toHaveURL(/from=.*to=/);
  await expect(page.getByLabel("Time")).toHaveValue("chosen");
  const further = async () => {
    const newest = (await list(scene, "top-talkers")).at(-1)!.seq;
    await expect.poll(async () => (await list(scene, "top-talkers")).at(-1)!.seq).toBeGreaterThan(newest + 1);
    await expect(page.locator(".facts-line")).not.toContainText(`window ${newest}`);
    return (await count.textContent())!;
  };
  // Some windows of the range may not have arrived yet.
  let zoomed = "";
  await expect.poll(async () => {
    const before = zoomed;
    zoomed = await further();
    return zoomed === before;
  }).toBe(true);
  expect(await further()).toBe(zoomed);
  await page.reload();
  await expect(count).toHaveText(zoomed);
  await page.locator(".chart .u-over").dblclick();
  await expect(page).not.toHaveURL(/from=/);
  await expect(count).not.toHaveText(zoomed);
});

test("a range of time over retained windows", async ({ page, scene }) => {
  await open(page, scene, "collector", "probe/packet-counter");
  await expect.poll(async () => (await list(scene, "packet-counter")).length).toBeGreaterThan(9);
  await expect(page.getByText(/^Retained: /)).toBeVisible();
  await page.getByLabel("Time").selectOption("chosen");
  const windows = await list(scene, "packet-counter");
  const local = (text: string) => page.evaluate((text) => {
    const date = new Date(Math.floor(Date.parse(text) / 1000) * 1000);
    // The browser leaves out seconds that are 0, and Playwright compares the exact text.
    return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19).replace(/:00$/, "");
  }, text);
  await page.getByLabel("From", { exact: true }).fill(await local(windows[3]!.end));
  await page.getByLabel("To", { exact: true }).fill(await local(windows[7]!.end));
  await expect(page).toHaveURL(/from=.*to=/);
  await page.getByRole("button", { name: "Wider" }).click();
  await expect(page.getByLabel("To", { exact: true })).not.toHaveValue(await local(windows[7]!.end));
  await page.goBack();
  await page.getByRole("tab", { name: "Table" }).click();
  const options = page.getByLabel("Window").locator("option");
  await expect(options.first()).toBeAttached();
  const chosen = new URL(page.url().replace("#", "")).searchParams;
  const [from, to] = ["from", "to"].map((name) => Date.parse(chosen.get(name)!));
  const inside = windows.filter((window) => Date.parse(window.end) > from! && Date.parse(window.start) < to!).map((window) => String(window.seq));
  expect(inside.length).toBeGreaterThan(3);
  // The window before the range was also fetched: cumulative numbers need it.
  const expected = ["newest", ...inside.reverse(), String(Number(inside.at(-1)) - 1)];
  await expect.poll(() => options.evaluateAll((all) => all.map((one) => (one as HTMLOptionElement).value))).toEqual(expected);
  await page.getByRole("button", { name: "Show newest" }).click();
  await expect.poll(async () => options.count()).toBeGreaterThan(9);
  await page.goto(`${scene.url}#/probe/packet-counter/chart?from=2001-01-01T00:00:00Z&to=2001-01-02T00:00:00Z`);
  await expect(page.getByText("No window of this range of time is retained")).toBeVisible();
});

// A window may be closed while its probe is being deleted.
test.use({ expected: [404] });

test("a long range is thinned out, says so, and its rates stay right", async ({ page, scene }) => {
  await scene.deploy("packet-counter", { window: { interval: "20ms", retain: 2000 } }, "fast");
  await expect.poll(async () => (await list(scene, "fast")).length).toBeGreaterThan(800);
  const windows = await list(scene, "fast");
  const [from, to] = [windows[0]!.start, windows[790]!.end].map((time) => `${time.slice(0, 19)}Z`);
  await open(page, scene, "collector", `probe/fast/chart?metric=ingress/ingress_protocols&from=${from}&to=${to}`);
  await expect(page.getByText(/Every [23](nd|rd) window of this range is drawn/)).toBeVisible();
  await expect(page.getByText(/^[23]\d\d windows, /)).toBeVisible();
  await scene.api("DELETE", "/v1/probes/fast");
});

test("addresses have names where one asks for them", async ({ page, scene }) => {
  await open(page, scene, "collector", "probe/top-talkers/table");
  const cell = page.getByRole("cell", { name: /^192\.0\.2\.1( |$)/ });
  await expect(cell).toHaveText("192.0.2.1");
  await page.getByLabel("names of addresses").check();
  await expect(cell).toHaveText("192.0.2.1 client.example");
  await expect(page).toHaveURL(/addresses=on/);
  await page.getByRole("tab", { name: "Chart" }).click();
  await expect(page.locator(".legend li").filter({ hasText: "192.0.2.1 client.example" })).toHaveCount(1);
  await page.getByLabel("names of addresses").uncheck();
  await expect(page.locator(".legend li").filter({ hasText: "client.example" })).toHaveCount(0);
});

test("ports have the names of services where one asks for them", async ({ page, scene }) => {
  const lines = [
    "#include <twinprobe.h>", "struct key { __u16 port; __u8 protocol; };", "TP_HASH(ports, struct key, struct tp_counters, 64);",
    "TP_PROBE(count, packet) { struct key key = {}; tp_parse(packet);", "if (!packet->version) return TP_PASS; key.port = packet->destination_port; key.protocol = packet->protocol;",
    "tp_count(ports, &key, tp_length(packet)); return TP_PASS; }", 'char LICENSE[] SEC("license") = "GPL";',
  ];
  const metrics = [{ name: "service", map: "ports", snapshot: true, init: true }];
  const config = { interface: "server0", ingress: { source: lines.join("\n"), metrics }, window: { interval: "1s" } };
  expect(await scene.api("PUT", "/v1/probes/services", config)).toMatchObject({ status: 201 });
  await open(page, scene, "collector", "probe/services/table");
  const row = page.locator("tbody tr").filter({ has: page.getByRole("cell", { name: /^5001/ }) });
  await expect(row.getByRole("cell").first()).toHaveText("5001");
  await page.getByLabel("names of services").check();
  await expect(row.getByRole("cell").first()).toHaveText("5001 iperf");
  await expect(row.getByRole("cell").nth(1)).toHaveText("17 UDP");
  await page.getByRole("tab", { name: "Chart" }).click();
  await expect(page.locator(".legend li").filter({ hasText: "5001 iperf 17 UDP" })).toHaveCount(1);
  await page.getByLabel("names of services").uncheck();
  await expect(page.locator(".legend li").filter({ hasText: "iperf" })).toHaveCount(0);
  await scene.api("DELETE", "/v1/probes/services");
});
