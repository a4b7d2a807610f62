import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests",
  workers: 1,
  // Limits for what never comes: on a busy machine what takes a second may take a minute.
  timeout: 300_000,
  expect: { timeout: 90_000 },
  reporter: "list",
  outputDir: "test-results",
  use: {
    browserName: "chromium",
    ignoreHTTPSErrors: true,
    viewport: { width: 1280, height: 800 },
    actionTimeout: 90_000,
    screenshot: "only-on-failure",
    // Debian's browser. Root, as whom the tests run, has no sandbox of it.
    launchOptions: { executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] },
  },
});
