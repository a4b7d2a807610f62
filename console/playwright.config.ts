import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests",
  workers: 1,
  // Limits for events that never come. They are high, because a step of a second may take a minute on a busy machine.
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
    // Debian's browser. The tests run as root, for which its sandbox does not work.
    launchOptions: { executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] },
  },
});
