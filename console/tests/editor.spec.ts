// The steps of a user who knows networks and has never seen eBPF.
import type { Page } from "@playwright/test";
import { expect, open, source, test } from "./scene.ts";

test.use({ expected: [422, 412] });

const code = (page: Page) => page.getByRole("textbox", { name: /C source/ });

/** Writes a line after the first line that has this text. */
async function insert(page: Page, after: string, text: string) {
  await code(page).click();
  await page.keyboard.press("Control+f");
  await page.locator(".cm-search input[name=search]").fill(after);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  await page.keyboard.press("End");
  await page.keyboard.type(`\n${text}`);
  await page.keyboard.press("Escape");
}

test("a template is deployed, seen, broken, and the message is understood", async ({ page, scene }) => {
  await open(page, scene, "operator");
  await page.getByRole("main").getByRole("link", { name: "New probe" }).click();
  await page.getByLabel("Search the library").fill("per IP protocol");
  await page.getByRole("link", { name: /packet-counter/ }).click();
  await expect(page.getByLabel("Name").first()).toHaveValue("packet-counter-2");
  await page.getByLabel("Name").first().fill("mine");
  await expect(page.getByRole("button", { name: /server0/ })).toHaveAttribute("aria-pressed", "true");
  await page.getByLabel("Interval").fill("1s");
  await page.getByRole("button", { name: "Validate" }).click();
  await expect(page.getByText("Valid.")).toBeVisible();
  await expect(page.locator(".valid table")).toContainText(/\d+\sns ±/);
  await page.getByLabel("Reason for the change").fill("who talks to the server?");
  await page.getByRole("button", { name: "Deploy" }).click();
  await page.getByRole("link", { name: "See what it counts" }).click();
  const { revisions } = JSON.parse((await scene.api("GET", "/v1/probes/mine/revisions")).text);
  expect(revisions[0].message).toBe("who talks to the server?");
  await expect(page.locator(".legend li").first()).toContainText(/\d\/s/);

  await page.getByRole("link", { name: "Edit" }).click();
  await expect(page.getByRole("heading", { name: "Edit mine" })).toBeVisible();
  await code(page).click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type("int broken(void) { return undefined_thing; }");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Deploy" }).click();
  const problem = page.getByRole("alert");
  await expect(problem).toContainText("undefined_thing");
  await expect(problem).toContainText("undefined_thing is not known here");
  await expect(page.locator(".cm-lintRange-error")).toHaveCount(1);
  // The probe continues to run unchanged.
  expect(JSON.parse((await scene.api("GET", "/v1/probes/mine")).text).revision).toBe(1);
  await scene.api("DELETE", "/v1/probes/mine");
});

test("what the verifier refuses has its line and says what to write", async ({ page, scene }) => {
  await open(page, scene, "operator", "new/empty");
  await code(page).click();
  await page.keyboard.press("Control+a");
  await page.keyboard.press("Delete");
  const text = [
    "#include <linux/bpf.h>", "#include <linux/if_ether.h>", "#include <bpf/bpf_helpers.h>", "",
    'struct { __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, __u64); __uint(max_entries, 1); } seen SEC(".maps");', "",
    'SEC("xdp") int count(struct xdp_md *ctx)', "{", "struct ethhdr *eth = (void *)(long)ctx->data;", "return eth->h_proto == 8 ? XDP_PASS : XDP_DROP;", "}",
  ];
  await page.keyboard.insertText(text.join("\n"));
  // The console completes the list of metrics from the maps that the source defines now.
  await page.getByRole("button", { name: "+ seen array" }).click();
  await page.getByRole("button", { name: "Remove metric sender" }).click();
  await expect(page.getByLabel("Map array")).toHaveValue("seen");
  await code(page).press("Control+Enter");
  const problem = page.getByRole("alert");
  await expect(problem).toContainText("invalid access to packet");
  await expect(problem.getByRole("button", { name: /line 10/ })).toBeVisible();
  await expect(problem).toContainText("if ((void *)(eth + 1) > data_end) return XDP_PASS;");
  await expect(page.locator(".cm-lint-marker-error")).toHaveCount(1);
});

/** Replaces a part of the source. */
async function exchange(page: Page, template: string, old: string, text: string) {
  const whole: string = source(template).ingress.source;
  expect(whole).toContain(old);
  await code(page).click();
  await page.keyboard.press("Control+a");
  await page.keyboard.press("Delete");
  await page.keyboard.insertText(whole.replace(old, text));
  await page.keyboard.press("Escape");
}

test("what both directions are refused for is told once, and in words", async ({ page, scene }) => {
  await open(page, scene, "operator", "new/top-talkers");
  await exchange(page, "top-talkers", "\ttp_parse(packet);", "\tfor (;;) all->packets++;");
  await page.getByRole("button", { name: "Validate" }).click();
  const problem = page.getByRole("alert");
  await expect(problem.getByRole("listitem")).toHaveCount(1);
  await expect(problem.getByRole("listitem")).toContainText("infinite loop detected");
  await expect(problem.getByRole("listitem")).toContainText("give the loop a constant bound");
  await expect(problem.getByRole("listitem")).not.toContainText("R10=fp0");
});

test("mistakes that follow from others stand behind them", async ({ page, scene }) => {
  await open(page, scene, "operator", "new/top-talkers");
  await exchange(page, "top-talkers", "struct talker {", "struct talker");
  await page.getByRole("button", { name: "Validate" }).click();
  await expect(page.getByRole("alert").getByRole("listitem").filter({ visible: true })).toHaveCount(3);
  await page.getByText("more, which may follow from these").click();
  await expect(page.getByRole("alert").getByRole("listitem").filter({ visible: true }).nth(4)).toBeVisible();
});

test("a probe that would change packets is refused with the line", async ({ page, scene }) => {
  await open(page, scene, "operator", "new/empty");
  await insert(page, "neither IPv4", "\t*(unsigned char *)tp_at(packet, 0, 1) = 1;");
  await page.getByRole("button", { name: "Validate" }).click();
  await expect(page.getByRole("alert")).toContainText(/admission|compile|load/);
});

test("mistakes of the configuration stand at their fields", async ({ page, scene }) => {
  await open(page, scene, "operator", "new/packet-counter");
  await page.getByLabel("Interfaces", { exact: true }).fill("");
  await page.getByLabel("Interval").fill("soon");
  await page.getByRole("button", { name: "Validate" }).click();
  await expect(page.locator(".field-error")).toContainText([/interface/, /soon/]);
});

test("all fields can be set as JSON", async ({ page, scene }) => {
  await open(page, scene, "operator", "new/packet-counter");
  await page.getByText("All fields as JSON").click();
  const json = page.getByLabel("Configuration as JSON");
  const config = JSON.parse(await json.inputValue());
  expect(config.ingress.source).toBeUndefined();
  await json.fill("{");
  await expect(page.locator(".json [role=alert]")).toBeVisible();
  await json.fill(JSON.stringify({ ...config, labels: { site: "turin" }, interfaces: ["server0"] }));
  await page.getByLabel("Name").first().fill("labelled");
  await page.getByRole("button", { name: "Deploy" }).click();
  await expect(page.getByText("Deployed.")).toBeVisible();
  expect(JSON.parse((await scene.api("GET", "/v1/probes/labelled")).text).labels).toEqual({ site: "turin" });
  await scene.api("DELETE", "/v1/probes/labelled");
});

test("who was slower is told so, and overwrites nothing", async ({ page, scene }) => {
  await scene.deploy("vlan", { window: { interval: "1s" } });
  await open(page, scene, "operator", "edit/vlan");
  await expect(page.getByLabel("Interval")).toHaveValue("1s");
  await scene.deploy("vlan", { window: { interval: "3s" } });
  await page.getByLabel("Interval").fill("7s");
  await page.getByRole("button", { name: "Deploy" }).click();
  await expect(page.getByText("Somebody has changed this probe")).toBeVisible();
  expect(JSON.parse((await scene.api("GET", "/v1/probes/vlan")).text).config.window.interval).toBe("3s");
  await scene.api("DELETE", "/v1/probes/vlan");
});

test("the files that a source includes have tabs, and mistakes are shown in their file", async ({ page, scene }) => {
  await open(page, scene, "operator", "new/empty");
  await page.getByLabel("Name").first().fill("sized");
  await code(page).click();
  await page.keyboard.press("Control+Home");
  await page.keyboard.insertText('#include "sizes.h"\n');
  await page.getByText("Files that the source includes").click();
  await page.getByLabel("New file").fill("sizes.h");
  await page.getByRole("button", { name: "Add file" }).click();
  const tab = page.getByRole("tab", { name: "sizes.h" });
  await expect(tab).toHaveAttribute("aria-selected", "true");
  const header = page.getByRole("textbox", { name: "sizes.h" });
  await header.click();
  await page.keyboard.insertText("struct sizes { unsigned long small; nothing large; };\n");
  await page.getByRole("tab", { name: "source", exact: true }).click();
  await expect(code(page)).toContainText('#include "sizes.h"');
  await page.getByRole("button", { name: "Validate" }).click();
  const problem = page.getByRole("alert");
  await expect(problem).toContainText("sizes.h");
  // A click on the place of the mistake opens the file.
  await problem.getByRole("button", { name: /line 1/ }).first().click();
  await expect(tab).toHaveAttribute("aria-selected", "true");
  await expect(page.locator(".cm-lintRange-error").first()).toBeVisible();
  await header.click();
  await page.keyboard.press("Control+a");
  // When text replaces several lines, Chromium adds an inline style, which the page's policy refuses.
  await page.keyboard.press("Delete");
  await page.keyboard.insertText("struct sizes { unsigned long small; unsigned long large; };\n");
  await page.getByRole("button", { name: "Deploy" }).click();
  await expect(page.getByText("Deployed.")).toBeVisible();
  const deployed = JSON.parse((await scene.api("GET", "/v1/probes/sized")).text);
  expect(deployed.config.ingress.files).toEqual({ "sizes.h": "struct sizes { unsigned long small; unsigned long large; };\n" });
  // A removed file is no longer sent.
  await page.getByRole("button", { name: "Remove sizes.h" }).click();
  await expect(page.getByRole("tab", { name: "sizes.h" })).toHaveCount(0);
  await page.getByRole("button", { name: "Validate" }).click();
  await expect(page.getByRole("alert")).toContainText("sizes.h");
  await scene.api("DELETE", "/v1/probes/sized");
});
