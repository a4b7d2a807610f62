// The overview, and what it is told.
import { expect, open, test } from "./scene.ts";

test("all probes with their state, traffic, cost and windows", async ({ page, scene }) => {
  await open(page, scene, "viewer");
  const row = page.getByRole("row").filter({ hasText: "top-talkers" });
  await expect(row).toContainText("running");
  await expect(row).toContainText("server0");
  await expect(row).toContainText(/\d+\sns/);
  // 350 packets come in each second, and some answers go out.
  const rate = row.getByRole("cell").nth(2);
  await expect(rate).toHaveText(/^\d+$/);
  await expect.poll(async () => Number(await rate.textContent())).toBeGreaterThan(200);
  expect(Number(await rate.textContent())).toBeLessThan(2000);
});

test("it is live without asking again", async ({ page, scene }) => {
  await open(page, scene, "viewer");
  const cell = page.getByRole("row").filter({ hasText: "top-talkers" }).getByRole("cell").nth(5);
  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  const before = await cell.textContent();
  await expect(cell).not.toHaveText(before!);
  await scene.deploy("vlan");
  await expect(page.getByRole("link", { name: "vlan" })).toBeVisible();
  await scene.api("DELETE", "/v1/probes/vlan");
  await expect(page.getByRole("link", { name: "vlan" })).toHaveCount(0);
  expect(requests).toEqual([]);
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
