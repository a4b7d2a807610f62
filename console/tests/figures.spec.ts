// The screenshots in docs/figures. UPDATE_FIGURES=1 writes them there. Otherwise the test makes them and throws them away.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, open, test } from "./scene.ts";

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

test("a histogram over time", async ({ page, scene }) => {
  await open(page, scene, "operator", "probe/packet-sizes/histogram");
  await expect(page.getByRole("img", { name: /Heat map/ })).toBeVisible();
  await expect(page.locator(".chart .legend li")).toHaveCount(3);
  await expect(page.getByText(/^Over \d\d+ windows/)).toBeVisible();
  await page.screenshot({ path: join(folder, "console-histogram.png"), fullPage: true });
});

test("a chart", async ({ page, scene }) => {
  await open(page, scene, "operator", "probe/top-talkers/chart?field=value.bytes");
  await expect(page.locator(".chart .legend li")).toHaveCount(3);
  // All windows are there, without a gap.
  const text = page.getByText(/^\d+ windows, /);
  const missing = async () => {
    const [windows, first, last] = [...(await text.textContent())!.matchAll(/\d+/g)].map(Number) as [number, number, number];
    return windows < 20 ? -1 : last - first + 1 - windows;
  };
  await expect.poll(missing).toBe(0);
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
