// Windows that are too large to be fetched one by one: the daemon makes the chart.
import { expect, open, test } from "./scene.ts";

const SOURCE = `
#include <twinprobe.h>
TP_ARRAY(places, __u64, 65536);
TP_PROBE(count, packet)
{
	__u32 key = 7;
	__u64 *place = bpf_map_lookup_elem(&places, &key);
	if (place)
		tp_add(place, 1);
	return TP_PASS;
}
char LICENSE[] SEC("license") = "Dual BSD/GPL";
`;

test("a chart of large windows comes from the daemon, and a table has all of a window", async ({ page, scene }) => {
  const metric = { name: "places", map: "places", snapshot: true, init: true };
  const put = await scene.api("PUT", "/v1/probes/large", { interface: "server0", ingress: { source: SOURCE, metrics: [metric] } });
  expect(put.status, put.text).toBe(201);
  try {
    for (let window = 0; window < 6; window += 1) expect((await scene.api("POST", "/v1/probes/large/windows")).status).toBe(201);
    const [charts, windows]: [string[], string[]] = [[], []];
    page.on("request", (request) => {
      const { pathname, search } = new URL(request.url());
      if (pathname === "/v1/probes/large/series") charts.push(search);
      if (/^\/v1\/probes\/large\/windows\/\d+$/.test(pathname)) windows.push(search);
    });
    await open(page, scene, "collector", "probe/large");
    const legend = page.locator(".legend li");
    await expect(legend.first()).toContainText("7");
    await expect(legend).toHaveCount(6);
    await expect(page.getByText(/^\d+ windows, \d\d:/)).toBeVisible();
    expect(charts[0]).toContain("top=5");
    expect(windows).toEqual(["?top=50"]);
    // The daemon makes another chart for one line.
    await legend.first().getByRole("button", { name: "7" }).click();
    await expect(legend).toHaveCount(1);
    await expect.poll(() => charts.at(-1)).toContain("key=7");
    await page.getByRole("button", { name: /show all/ }).click();
    await expect(legend).toHaveCount(6);
    await page.getByRole("combobox", { name: "Top" }).selectOption("1");
    await expect(legend).toHaveCount(2);
    await expect(legend.last()).toContainText(/65\D?535 others/);
    // The chart also shows the next window.
    const count = page.getByText(/^\d+ windows, /);
    const before = Number.parseInt((await count.textContent())!);
    await page.getByRole("button", { name: "Close window now" }).click();
    await expect.poll(async () => Number.parseInt((await count.textContent())!)).toBe(before + 1);
    await page.getByRole("tab", { name: "Table" }).click();
    await expect(page.getByText(/^65\D?536 entries/)).toBeVisible();
  } finally {
    await scene.api("DELETE", "/v1/probes/large");
  }
});
