import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests",
  workers: 1,
  timeout: 40_000,
  expect: { timeout: 12_000 },
  reporter: "list",
  outputDir: "test-results",
  use: {
    browserName: "chromium",
    ignoreHTTPSErrors: true,
    viewport: { width: 1280, height: 800 },
    actionTimeout: 8_000,
    screenshot: "only-on-failure",
    // Debian's browser. Root, as whom the tests run, has no sandbox of it.
    launchOptions: { executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] },
  },
});
