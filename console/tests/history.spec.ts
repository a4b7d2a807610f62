// Charts beyond the retained windows, from a server that stores the samples of the daemon.
import { createServer } from "node:http";
import { expect, open, test } from "./scene.ts";

test.use({ expected: [401] });

/** A server that answers each question with numbers of two addresses, as Prometheus does. */
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
      const result = [
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

test("a range before the oldest window comes from the server of --history, and says so", async ({ browser, page: later, scene }) => {
  const { asked, server } = samples();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(server.address() as { port: number }).port}`;
  const restart = async (...more: string[]) => {
    await scene.stop("SIGTERM");
    scene.more = more;
    await scene.start();
  };
  await restart("--history", `http://${host}`);
  // A page of its own: the browser notes each attempt to reach a daemon that is away.
  const page = await browser.newPage({ ignoreHTTPSErrors: true });
  const failures: string[] = [];
  page.on("pageerror", (error) => failures.push(error.message));
  try {
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
    // The address alone shows the same.
    await page.reload();
    await expect(mark).toHaveText(`from ${host}`);
    // Tables have windows alone.
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
  } finally {
    server.close();
    await page.close();
    await restart();
  }
  expect(failures).toEqual([]);
  // Without the option the console shows nothing of it.
  await open(later, scene, "collector", "probe/top-talkers?last=24h");
  await expect(later.getByText(/^Retained: /)).toBeVisible();
  await expect(later.getByRole("option", { name: "last 30 days" })).toHaveCount(0);
  await expect(later.getByText(host)).toHaveCount(0);
});
