// The console works with the keyboard, screen readers, dark and light themes, and narrow screens.
import type { Page } from "@playwright/test";
import axe from "axe-core";
import { expect, Neighbour, open, test } from "./scene.ts";

const VIEWS: [string, RegExp][] = [
  ["", /packet-sizes/],
  ["find/192.0.2.11", /counts per second/],
  ["interface/server0", /own counters/],
  ["history", /^created$/],
  ["probe/top-talkers/chart", /Largest over/],
  ["probe/top-talkers/table", /entries/],
  ["probe/packet-sizes/histogram", /Newest window/],
  ["probe/sampled-headers/events", /since this view/],
  ["probe/top-talkers/attachment", /count_talkers/],
  ["probe/top-talkers/revisions", /deployed/],
  ["probe/top-talkers/windows", /etained windows/],
  ["nodes", /all answer|without an answer/],
  ["nodes/top-talkers", /one scale and one time/],
  ["rules", /watched/],
  ["rule/watched/firings", /taken/],
  ["rule/watched/document", /Fires when/],
  ["rule/watched/revisions", /in force/],
  ["new", /drops-between/],
  ["new/top-talkers", /Ctrl\+Enter/],
  ["replay", /Drop a pcap/],
  ["capabilities", /lookup and delete batch|iterative/],
];

// The condition has a long line, and the second document has a difference.
const CONDITION = `${"rate(ingress.talker, 'packets') > 100 || ".repeat(4)}max(ingress.talker, 'packets') > 100`;

let neighbour: Neighbour;

test.beforeAll(async ({ scene }) => {
  neighbour = await Neighbour.make(scene, "top-talkers");
  for (const text of ["most", "most of {{top(ingress.talker)}}"]) {
    const rule = { watch: "top-talkers", when: CONDITION, do: [{ mark: text }] };
    expect((await scene.api("PUT", "/v1/rules/watched", rule)).status).toBeLessThan(300);
  }
});
test.afterAll(async ({ scene }) => {
  await scene.api("DELETE", "/v1/rules/watched");
  await neighbour.end();
});

async function violations(page: Page) {
  // The page's policy forbids foreign scripts. It does not apply to scripts that the test evaluates.
  await page.evaluate(`${axe.source};0`);
  const found = await page.evaluate(() => (globalThis as any).axe.run({ resultTypes: ["violations"] }));
  return found.violations.map((one: any) => `${one.id}: ${one.nodes.map((node: any) => `${node.target} ${node.failureSummary}`).join("; ")}`);
}

for (const scheme of ["light", "dark"] as const) {
  for (const width of [1280, 390]) {
    test(`each view, ${scheme}, ${width} pixels wide`, async ({ page, scene }) => {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height: 800 });
      await open(page, scene, "admin");
      for (const [view, there] of VIEWS) {
        await page.evaluate((view) => (location.hash = `#/${view}`), view);
        await expect(page.getByText(there).first()).toBeVisible();
        expect(await violations(page), `${view}, ${scheme}, ${width}`).toEqual([]);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(overflow, `${view} is wider than the screen`).toBeLessThanOrEqual(0);
      }
    });
  }
}

test.describe("without a token", () => {
  test.use({ expected: [401] });
  test("signing in", async ({ page, scene }) => {
    await page.goto(scene.url);
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    expect(await violations(page)).toEqual([]);
  });
});

test("the keyboard reaches everything", async ({ page, scene }) => {
  await open(page, scene, "operator", "probe/top-talkers/attachment");
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to content" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("main")).toBeFocused();
  await page.getByRole("tab", { name: "Attachment" }).focus();
  await page.keyboard.press("ArrowRight");
  await expect(page.getByRole("tab", { name: "Revisions" })).toBeFocused();
  await expect(page.getByRole("tab", { name: "Revisions" })).toHaveAttribute("aria-selected", "true");
  await page.goto(`${scene.url}#/new/empty`);
  const code = page.getByRole("textbox", { name: /C source/ });
  await code.focus();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Tab");
  await expect(code).not.toBeFocused();
});

test("the theme that is chosen stays", async ({ page, scene }) => {
  await open(page, scene, "viewer");
  await page.getByLabel("Theme").selectOption("dark");
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
});
