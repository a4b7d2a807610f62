// A user drops captures onto the page, and the page shows the document.
import { readFileSync, writeFileSync } from "node:fs";
import { capture, expect, open, test } from "./scene.ts";

test.use({ expected: [422] });

test("a capture gives the document that its packets make", async ({ page, scene }) => {
  await open(page, scene, "operator", "replay");
  await page.getByLabel("Probe").selectOption("library top-talkers");
  const bytes = readFileSync(capture("top-talkers")).toString("base64");
  const data = await page.evaluateHandle((bytes) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0))], "talkers.pcap"));
    return data;
  }, bytes);
  await page.locator(".drop").first().dispatchEvent("drop", { dataTransfer: data });
  await expect(page.getByText("talkers.pcap")).toBeVisible();
  await page.getByRole("button", { name: "Replay" }).click();
  await expect(page.getByText("seen by a program")).toBeVisible();
  await expect(page.locator("tbody tr").first()).toBeVisible();
  const shown = JSON.parse(await page.locator("details pre").textContent() ?? "{}");
  expect(shown.replayed.packets).toBeGreaterThan(10);
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save as JSON" }).click();
  expect(JSON.parse(readFileSync(await (await download).path(), "utf8"))).toEqual(shown);
});

test("what is not a capture is refused in words", async ({ page, scene }, info) => {
  await open(page, scene, "operator", "replay");
  await page.getByLabel("Probe").selectOption("probe top-talkers");
  const file = info.outputPath("broken.pcap");
  writeFileSync(file, "this is not a capture, however long it may be looked at");
  await page.getByLabel("Capture of both directions, or of what comes in").setInputFiles(file);
  await page.getByRole("button", { name: "Replay" }).click();
  await expect(page.getByRole("alert")).toContainText(/capture|pcap/);
});
