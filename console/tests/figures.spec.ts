// The screenshots in docs/figures. UPDATE_FIGURES=1 writes them there. Otherwise the test discards them.
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, Neighbour, open, test } from "./scene.ts";

const FIGURES = fileURLToPath(new URL("../../docs/figures", import.meta.url));
const folder = process.env.UPDATE_FIGURES ? FIGURES : mkdtempSync(join(tmpdir(), "figures-"));

// A source with a mistake is refused.
test.use({ viewport: { width: 1280, height: 900 }, expected: [422] });

test("the overview", async ({ page, scene }) => {
  await open(page, scene, "operator");
  await expect(page.locator("article.interface").first()).toContainText("Mbit/s");
  await expect(page.locator("article").filter({ hasText: "192.0.2.12" })).toBeVisible();
  // The lines of interfaces need some time to fill.
  const points = async () => ((await page.locator("article.interface polyline").first().getAttribute("points")) ?? "").split(" ").length;
  await expect.poll(points).toBeGreaterThan(process.env.UPDATE_FIGURES ? 24 : 3);
  await page.screenshot({ path: join(folder, "console-overview.png"), fullPage: true });
});

test("all that is known of an address", async ({ page, scene }) => {
  await scene.deploy("flow-features", { window: { interval: "1s" } });
  await page.setViewportSize({ width: 1280, height: 420 });
  await open(page, scene, "operator", "find/192.0.2.11");
  for (const name of ["flow-features ingress flows", "top-talkers egress talker"]) await expect(page.getByRole("region", { name }).locator("tbody tr").first()).toBeVisible();
  await page.screenshot({ path: join(folder, "console-find.png"), fullPage: true });
  await scene.api("DELETE", "/v1/probes/flow-features");
});

test("a histogram over time", async ({ page, scene }) => {
  await open(page, scene, "operator", "probe/packet-sizes/histogram");
  await expect(page.getByRole("img", { name: /Heat map/ })).toBeVisible();
  await expect(page.locator(".chart .legend li")).toHaveCount(3);
  await expect(page.getByText(/^Over \d\d+ windows/)).toBeVisible();
  await page.screenshot({ path: join(folder, "console-histogram.png"), fullPage: true });
});

test("a chart", async ({ page, scene }) => {
  const { config } = JSON.parse((await scene.api("GET", "/v1/probes/top-talkers")).text);
  const put = await scene.api("PUT", "/v1/probes/top-talkers?message=look%20back%20further", { ...config, window: { interval: "1s", retain: 600 } });
  expect(put.status, put.text).toBe(200);
  await open(page, scene, "operator", "probe/top-talkers/chart?field=value.bytes");
  await expect(page.locator(".chart .legend li")).toHaveCount(3);
  await expect(page.getByRole("list", { name: "Changes in this time" })).toContainText("look back further");
  // All windows are there, without a gap.
  const text = page.getByText(/^\d+ windows, /);
  const missing = async () => {
    const [windows, first, last] = [...(await text.textContent())!.matchAll(/\d+/g)].map(Number) as [number, number, number];
    return windows < 20 ? -1 : last - first + 1 - windows;
  };
  await expect.poll(missing).toBe(0);
  await expect(text).toContainText("Gaps are");
  // The change is in the middle of the chart, and not at its edge.
  const newest = async () => Number(/to (\d+)/.exec((await text.textContent())!)![1]);
  const end = (await newest()) + (process.env.UPDATE_FIGURES ? 15 : 1);
  await expect.poll(newest).toBeGreaterThanOrEqual(end);
  await page.screenshot({ path: join(folder, "console-chart.png"), fullPage: true });
});

test("the editor with a mistake", async ({ page, scene }) => {
  await open(page, scene, "operator", "new/top-talkers");
  const code = page.getByRole("textbox", { name: /C source/ });
  await code.click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type("int broken(void) { return undefined_thing; }");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Validate" }).click();
  await expect(page.getByRole("alert")).toContainText("undefined_thing is not known here");
  await expect(page.locator(".cm-lintRange-error")).toHaveCount(1);
  await page.screenshot({ path: join(folder, "console-editor.png"), fullPage: true });
});

test("the rules", async ({ page, scene }) => {
  const rules = {
    "busy-talkers": { when: "rate(ingress.talker, 'packets') > 100", do: [{ apply: { name: "sizes-of-busy", probe: "packet-sizes", expires: "5m" } }] },
    "one-sender": { when: "sum(ingress.talker, '192.0.2.1', 'packets') > 0.9 * sum(ingress.talker, 'packets')", do: [{ mark: "most of {{top(ingress.talker)}}" }] },
    "syn-flood": { when: "rate(ingress.talker, 'packets') > 1000000.0", do: [{ notify: "https://alerts.example/hook" }] },
  };
  for (const [name, rule] of Object.entries(rules)) {
    const answer = await scene.api("PUT", `/v1/rules/${name}`, { watch: "top-talkers", ...rule });
    expect(answer.status, answer.text).toBe(201);
  }
  await page.setViewportSize({ width: 1280, height: 400 });
  await open(page, scene, "operator", "rules");
  const row = page.getByRole("region", { name: "Rules" }).getByRole("row").filter({ hasText: "busy-talkers" });
  await expect(row).toContainText("firing");
  await page.screenshot({ path: join(folder, "console-rules.png"), fullPage: true });
  for (const name of Object.keys(rules)) await scene.api("DELETE", `/v1/rules/${name}`);
});

test("a probe at several nodes", async ({ page, scene }) => {
  const neighbour = await Neighbour.make(scene, "top-talkers");
  // The answers to these requests reach the second node.
  const ping = spawn("nsenter", [`--net=/run/netns/${process.env.CONSOLE_CLIENT}`, "ping", "-q", "-i", "0.01", "192.0.2.2"], { stdio: "ignore" });
  try {
    const list = async () => JSON.parse((await scene.api("GET", "/v1/probes/top-talkers/windows", undefined, "sock-2")).text).windows as { start: string }[];
    await expect.poll(async () => (await list()).length, { timeout: 240_000 }).toBeGreaterThan(process.env.UPDATE_FIGURES ? 60 : 8);
    // The first windows have little traffic. The daemon would refuse a time that is later than the
    // newest window.
    const from = (await list()).at(3)?.start;
    await page.setViewportSize({ width: 1280, height: 640 });
    await open(page, scene, "collector", `nodes/top-talkers?metric=ingress%2Ftalker&from=${encodeURIComponent(from ?? "")}`);
    await expect(page.getByRole("article").locator(".legend")).toHaveCount(2);
    await page.screenshot({ path: join(folder, "console-nodes.png"), fullPage: true });
  } finally {
    ping.kill();
    // The page logs each failed attempt to reach a daemon.
    await page.close();
    await neighbour.end();
  }
});
