// The console continues when the daemon is back.
import { expect, open, test } from "./scene.ts";

// While the daemon is down, the browser notes each attempt to reach it.
test("a daemon that is killed and comes back", async ({ browser, scene }) => {
  const page = await browser.newPage({ ignoreHTTPSErrors: true });
  const failures: string[] = [];
  page.on("pageerror", (error) => failures.push(error.message));
  await open(page, scene, "collector", "probe/top-talkers");
  const count = page.getByText(/windows?, \d+ to/);
  await expect(count).toBeVisible();
  await scene.stop("SIGKILL");
  await expect(page.getByRole("alert")).toContainText("The console tries again");
  await expect(page.getByText("connection lost")).toBeVisible();
  await expect(count).toBeVisible();
  const before = await count.textContent();
  await scene.start();
  await expect(page.getByText("live", { exact: true })).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
  await expect(count).not.toHaveText(before!);
  expect(failures).toEqual([]);
  await page.close();
});
