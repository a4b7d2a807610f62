// Charts beyond the retained windows, from a server that stores the samples of the daemon.
import type { Browser, Page } from "@playwright/test";
import { createServer, type Server } from "node:http";
import { expect, fromDist, open, type Scene, test } from "./scene.ts";

test.use({ expected: [401] });

/** A server that answers each question with numbers of two addresses, or with buckets, as Prometheus does. */
function samples() {
  const asked: URLSearchParams[] = [];
  const server = createServer((incoming, outgoing) => {
    let text = "";
    incoming.on("data", (data) => (text += data));
    incoming.on("end", () => {
      const form = new URLSearchParams(text);
      asked.push(form);
      const [start, end, step] = ["start", "end", "step"].map((name) => Number(form.get(name))) as [number, number, number];
      const times = Array.from({ length: Math.round((end - start) / step) + 1 }, (_, index) => start + index * step);
      const series = (metric: object, number: string) => ({ metric, values: times.map((time) => [time, number]) });
      const isOfBuckets = /_bucket\{/.test(form.get("query")!);
      const buckets = { "63.0": "0", "127.0": "10", "255.0": "30", "511.0": "40", "+Inf": "40" };
      const result = isOfBuckets ? Object.entries(buckets).map(([le, number]) => series({ le }, number)) : [
        series({ address: "192.0.2.77" }, "3000"),
        series({ address: "192.0.2.78" }, "600"),
        series({ twinprobe_history: "total" }, "4200"),
        series({ twinprobe_history: "keys" }, "9"),
      ];
      outgoing.setHeader("content-type", "application/json");
      outgoing.end(JSON.stringify({ status: "success", data: { resultType: "matrix", result } }));
    });
  });
  return { asked, server };
}

/** Starts the daemon with a server of samples. The page is a new one, because it logs failed requests to a daemon. */
async function withSamples(scene: Scene, browser: Browser, use: (page: Page, host: string, asked: URLSearchParams[], server: Server) => Promise<void>) {
  const { asked, server } = samples();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(server.address() as { port: number }).port}`;
  const restart = async (...more: string[]) => {
    await scene.stop("SIGTERM");
    scene.more = more;
    await scene.start();
  };
  await restart("--history", `http://${host}`);
  const page = await browser.newPage({ ignoreHTTPSErrors: true });
  if (process.env.CONSOLE_DIST) await fromDist(page);
  const failures: string[] = [];
  page.on("pageerror", (error) => failures.push(error.message));
  try {
    await use(page, host, asked, server);
  } finally {
    server.close();
    server.closeAllConnections();
    await page.close();
    await restart();
  }
  expect(failures).toEqual([]);
  return host;
}

test("a range before the oldest window comes from the server of --history, and says so", async ({ browser, page: later, scene }) => {
  const host = await withSamples(scene, browser, async (page, host, asked, server) => {
    await open(page, scene, "collector", "probe/top-talkers?metric=ingress%2Ftalker&field=value.bytes");
    const time = page.getByRole("combobox", { name: "Time" });
    const mark = page.locator(".source");
    const legend = page.locator(".legend li");
    await expect(legend.first()).toBeVisible();
    await expect(mark).toHaveCount(0);
    expect(asked).toHaveLength(0);
    await time.selectOption("24h");
    await expect(mark).toHaveText(`from ${host}`);
    await expect(page.getByText(/^\d+ points from 127\.0\.0\.1:\d+, /)).toBeVisible();
    await expect(legend).toHaveText([/192\.0\.2\.77/, /192\.0\.2\.78/, /7 others/]);
    expect(asked[0]!.get("query")).toContain('net_talker_bytes_total{probe="top-talkers",direction="ingress",node="gw-1",job=""}');
    await expect(page).toHaveURL(/last=24h/);
    // A page that is opened with the same address shows the same chart.
    await page.reload();
    await expect(mark).toHaveText(`from ${host}`);
    // Tables show windows only.
    await page.getByRole("tab", { name: "Table" }).click();
    await expect(page.getByText(host)).toHaveCount(0);
    await page.getByRole("tab", { name: "Chart" }).click();
    await time.selectOption("30d");
    await expect(mark).toBeVisible();
    server.close();
    server.closeAllConnections();
    await time.selectOption("7d");
    await expect(page.getByRole("alert")).toContainText(host);
    await page.getByRole("button", { name: "Show newest" }).click();
    await expect(legend.first()).toBeVisible();
    await expect(mark).toHaveCount(0);
  });
  // Without the option the console hides the server.
  await open(later, scene, "collector", "probe/top-talkers?last=24h");
  await expect(later.getByText(/^Retained: /)).toBeVisible();
  await expect(later.getByRole("option", { name: "last 30 days" })).toHaveCount(0);
  await expect(later.getByText(host)).toHaveCount(0);
});

test("a histogram goes back to the buckets that the server has stored", async ({ browser, scene }) => {
  await withSamples(scene, browser, async (page, host, asked) => {
    await open(page, scene, "collector", "probe/packet-sizes/histogram?last=24h");
    const mark = page.locator(".source");
    await expect(mark).toHaveText(`from ${host}`);
    await expect(page.getByRole("heading", { name: /^This time/ })).toBeVisible();
    expect(asked[0]!.get("query")).toMatch(/packet_size_bytes_bucket\{probe="packet-sizes",direction="ingress"/);
    // 24 hours have 288 points or more. Each point has the same counts in three slots.
    const rows = page.locator("table.histogram tbody tr");
    await expect(rows).toHaveCount(3);
    await expect(rows.getByRole("rowheader")).toHaveText([/^64\sB to 127\sB$/, /^128\sB to 255\sB$/, /^256\sB to 511\sB$/]);
    const figures = page.getByLabel("Percentiles", { exact: true }).first();
    await expect(figures).toContainText(/p50\s*255\sB/);
    const heading = page.getByRole("heading", { name: /^Over \d+ points$/ });
    await expect(heading).toBeVisible();
    await expect(page.getByRole("img", { name: /Heat map of ingress packet_size_bytes over \d+ points/ })).toBeVisible();
    await expect(page.locator(".chart .legend li")).toHaveText([/p50\s*255\sB/, /p95/, /p99/]);
    // Only windows have the distribution of the values of a table's entries.
    await page.getByRole("combobox", { name: "Metric" }).selectOption("ingress/size_class");
    await expect(page.getByText("There is no history of how the entries of a table spread")).toBeVisible();
    await page.getByRole("button", { name: "Show newest" }).click();
    await expect(page.getByRole("img", { name: /over \d+ windows?$/ })).toBeVisible();
    await expect(mark).toHaveCount(0);
  });
});
