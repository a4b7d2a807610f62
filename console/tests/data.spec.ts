// The data that the console computes from the daemon's answers, without a daemon and a browser.
import { expect, test } from "@playwright/test";
import type { Document, Probe, WindowsStatus } from "../src/api/types.ts";
import { dropsOf } from "../src/data/alerts.ts";
import { count, inUnit, until } from "../src/data/format.ts";
import { endedBefore, newestTwo } from "../src/data/newest.ts";
import { labelOf } from "../src/data/aggregated.ts";
import { bucketsOf, firstHistogram, histogramOf, slotWords, trimmed } from "../src/data/histogram.ts";
import { keyLabel, shortened } from "../src/data/keys.ts";
import { findIn, labelOfRow } from "../src/data/find.ts";
import { atInterface, columnsOf, firstFull, namesInterfaces, readable, rowOf } from "../src/data/rows.ts";
import { linesOf } from "../src/data/series.ts";
import { topOf } from "../src/data/top.ts";

const status = (windows: Partial<WindowsStatus>): WindowsStatus => ({ retained: 0, bytes: 0, oldest: null, newest: null, lost: 0, damaged: 0, ...windows });

const probe = (config: object = {}): Probe => ({
  name: "one", state: "running", revision: 1, created: "", interfaces: [], programs: {}, windows: status({}), warnings: [], config: config as Probe["config"],
});

/** A window of a second that ended so many seconds after 14:00, with the entries of one metric. */
const windowOf = (seq: number, ended: number, entries: unknown[], metric: object = {}): Document => ({
  probe: "one", interfaces: ["s0"], egress: {},
  window: { seq, start: new Date(Date.UTC(2026, 0, 1, 14, 0, ended - 1)).toISOString(), end: new Date(Date.UTC(2026, 0, 1, 14, 0, ended)).toISOString(), duration_ns: 1e9, quiesce_us: 0 },
  ingress: { packets: { map: "packets", type: "hash", entries, ...metric } as never },
});

test.describe("the newest windows", () => {
  const take = async (windows: WindowsStatus, listed: number[], missing: number[] = []) => {
    const asked: (number | "list")[] = [];
    const list = async () => (asked.push("list"), listed.map((seq) => ({ seq })));
    const found = await newestTwo(windows, list, async (seq) => {
      asked.push(seq);
      if (missing.includes(seq)) throw new Error("404");
      return windowOf(seq, seq, []);
    });
    return { seqs: found.map((one) => one.window!.seq), asked };
  };

  test("are those that are retained, also if numbers between them are missing", async () => {
    expect(await take(status({ retained: 4, oldest: 1, newest: 63 }), [1, 5, 6, 63])).toEqual({ seqs: [6, 63], asked: ["list", 63, 6] });
    expect(await take(status({ retained: 3, oldest: 61, newest: 63 }), [])).toEqual({ seqs: [62, 63], asked: [63, 62] });
    expect(await take(status({ retained: 1, oldest: 63, newest: 63 }), [])).toEqual({ seqs: [63], asked: [63] });
    expect(await take(status({}), [])).toEqual({ seqs: [], asked: [] });
  });

  test("are the newest alone if the one before it has gone meanwhile", async () => {
    expect((await take(status({ retained: 2, oldest: 62, newest: 63 }), [], [62])).seqs).toEqual([63]);
  });

  test("have rates of sums over all the time between them", () => {
    const one = probe({ ingress: { metrics: [{ name: "packets", map: "packets", snapshot: true }] } });
    const windows = [windowOf(6, 10, [{ key: "ACK", value: 100 }]), windowOf(63, 30, [{ key: "ACK", value: 300 }])];
    expect(topOf(one, windows, 5)!.lines).toMatchObject([{ label: "ACK", value: 10 }]);
    expect(findIn(one, windows, "ACK", 5)[0]!.rows).toMatchObject([{ value: 10 }]);
  });
});

test("a short pause changes no choice of a metric", () => {
  const window = (flows: unknown[]) => ({ ...windowOf(1, 0, []), ingress: { flows: { map: "f", type: "hash", entries: flows }, refused: { map: "r", type: "array", entries: [{ key: 0, value: 0 }] } } as never });
  expect(firstFull([window([{ key: "A", value: 1 }]), window([])])?.name).toBe("flows");
  expect(firstFull([window([])])?.name).toBe("refused");
});

test("insides of sketches are no columns for people", () => {
  const rows = [rowOf({ key: `0x${"00".repeat(20)}`, value: { different: 3, mark: "0x00000010", sketch: `0x${"00".repeat(20)}` } } as never)];
  expect(readable(columnsOf(rows), rows).map((column) => column.title)).toEqual(["key", "different", "mark"]);
  const array = ["s0", "s1"].map((name) => rowOf({ key: { interface: name, key: 0 }, value: 3 } as never));
  expect(readable(columnsOf(array), array).map((column) => column.title)).toEqual(["interface", "value"]);
});

test("the summary of a probe has a histogram before its sum, and no slot that all rows share", () => {
  const slots = (key: number) => Array.from({ length: 64 }, (_, slot) => ({ key: { interface: "s0", key: slot }, value: slot === key ? 7 : 0 }));
  const sum = { map: "s", type: "percpu_array", entries: [{ key: { interface: "s0", key: 0 }, value: 900 }] };
  const resets = probe({ ingress: { metrics: [{ name: "gap_ns", map: "h", snapshot: true, init: true }, { name: "gap_ns_sum", map: "s", snapshot: true, init: true }] } });
  const both = { ...windowOf(1, 1, []), ingress: { gap_ns_sum: sum, gap_ns: { map: "h", type: "percpu_array", histogram: true, entries: slots(12) } } as never };
  expect(topOf(resets, [both], 5)).toMatchObject({ place: { name: "gap_ns" }, scale: "log2", lines: [{ label: "s0 12", value: 7 }] });
  const alone = { ...windowOf(1, 1, []), ingress: { gap_ns_sum: sum } as never };
  expect(topOf(resets, [alone], 5)).toMatchObject({ keys: ["interface"], lines: [{ label: "s0" }] });
});

test("numbers of a window that ended long ago say when", () => {
  const { window } = windowOf(63, 0, []);
  const end = Date.parse(window!.end);
  const after = (seconds: number, interval?: string) => endedBefore(probe({ window: { interval } }), window, end + 1000 * seconds);
  expect(after(29)).toBeNull();
  expect(after(31)).toBe(end);
  expect(after(31, "1m")).toBeNull();
  expect(after(181, "1m")).toBe(end);
  expect(after(271, "1m30s")).toBe(end);
  expect(after(269, "1m30s")).toBeNull();
  expect(endedBefore(probe(), undefined, end)).toBeNull();
  expect(until(end, end + 120_000)).toMatch(/^until \d\d:\d\d:00, 2\Dmin ago$/);
});

test("drops are an alert from a share and a rate on", () => {
  const none = { packets: 1000, dropped: 0 };
  const alerts = (packets: number, dropped: number) => dropsOf("s0", { ingress: { packets, dropped }, egress: none });
  expect(alerts(106, 3.95)).toEqual([]);
  expect(alerts(100_000, 900)).toEqual([]);
  expect(alerts(1000, 20)).toMatchObject([{ kind: "warn", about: "s0", text: expect.stringMatching(/^drops 20 packets a second of those received \(2.0 %\): .*queues.*VLAN/) }]);
  // A driver may count dropped packets apart from received ones.
  expect(alerts(0, 50)).toMatchObject([{ text: expect.stringContaining("(100.0 %)") }]);
  expect(dropsOf("s0", { ingress: none, egress: { packets: 100, dropped: 50 } })).toMatchObject([{ text: expect.stringContaining("to be sent (50.0 %)") }]);
  expect(dropsOf("s0", undefined)).toEqual([]);
});

test("the page of an interface has the rows of this interface, where rows name it", () => {
  const key = (name: string, address: string) => ({ key: { interface: name, address }, value: 1 });
  const both = windowOf(1, 0, [key("s0", "192.0.2.1"), key("s1", "192.0.2.2")]);
  const labels = (document: Document) => topOf(probe({ ingress: { metrics: [{ name: "packets", map: "packets", init: true }] } }), [document], 5)?.lines.map(({ label }) => label);
  expect(namesInterfaces(both)).toBe(true);
  expect(labels(atInterface(both, "s0"))).toEqual(["s0 192.0.2.1"]);
  expect(labels(atInterface(both, "s2"))).toBeUndefined();
  const plain = windowOf(1, 0, [{ key: "192.0.2.1", value: 1 }, { key: "192.0.2.2", value: 1 }]);
  expect(namesInterfaces(plain)).toBe(false);
  expect(labels(atInterface(plain, "s0"))).toHaveLength(2);
});

test("small numbers have no exponent", () => {
  expect([0.0049, 0.005, 0.00012, 0.0000034, 1e-9, 0.02, 0.5].map(count)).toEqual(["0.0049", "0.005", "0.00012", "0.0000034", "< 0.000001", "0.02", "0.5"]);
  expect(inUnit(0.005, "packets", true)).toBe("0.005/s");
});

test("one other key is one other", () => {
  const groups = (count: number) => new Map(Array.from({ length: count }, (_, index) => [`key ${index}`, 1] as const));
  const last = (count: number) => linesOf([{ seq: 1, time: 1, seconds: 1, groups: groups(count) }], { place: { direction: "ingress", name: "packets" }, field: "value", by: ["key"], top: 2, cumulative: false, perSecond: true }).at(-1)!.label;
  expect([last(3), last(4)]).toEqual(["1 other", "2 others"]);
});

test.describe("keys", () => {
  const vlan = { interface: "s0", tags: 1, priority: 0, vlan: 7 };
  const by = ["key.interface", "key.tags", "key.priority", "key.vlan"];

  test("have the names of their numbers, the same everywhere", () => {
    const text = "s0 tags=1 priority=0 vlan=7";
    const row = rowOf({ key: vlan, value: 1 });
    expect(keyLabel(row, by)).toBe(text);
    expect(labelOf(vlan, { by })).toBe(text);
    expect(labelOfRow(row, columnsOf([row]).filter((column) => column.isKey))).toBe(text);
    const one = probe({ ingress: { metrics: [{ name: "packets", map: "packets", init: true }] } });
    expect(topOf(one, [windowOf(1, 0, [{ key: vlan, value: 1 }])], 5)!.lines).toMatchObject([{ label: text }]);
  });

  test("have no name where one is enough", () => {
    const flow = rowOf({ key: { src: "192.0.2.1", dst: "::ffff:192.0.2.2", protocol: 6, src_port: 40000, dst_port: 443 }, value: 1 });
    const ids = ["key.src", "key.dst", "key.protocol", "key.src_port", "key.dst_port"];
    expect(keyLabel(flow, ids)).toBe("192.0.2.1 192.0.2.2 6 40000 443");
    expect(keyLabel(flow, ids, true)).toBe("192.0.2.1 192.0.2.2 6 TCP 40000 443 https");
    expect(keyLabel(rowOf({ key: 5, value: 1 }), ["key"])).toBe("5");
    expect(keyLabel(rowOf({ key: [1, 2], value: 1 }), ["key[0]", "key[1]"])).toBe("1 2");
    expect(keyLabel(rowOf({ key: vlan, value: 1 }), ["key.vlan"])).toBe("7");
  });

  test("lose words in the middle if they are long, and never look the same", () => {
    const flow = (port: number, middle = "2001:db8::2") => `2001:db8:1:2:3:4:5:6 ${middle} 6 ${port} 443`;
    expect(shortened([flow(40000), flow(40001)], 40)).toEqual(["2001:db8:1:2:3:4:5:6 … 40000 443", "2001:db8:1:2:3:4:5:6 … 40001 443"]);
    expect(shortened([flow(40000), flow(40000, "2001:db8::3"), "short"], 40)).toEqual([flow(40000), flow(40000, "2001:db8::3"), "short"]);
    expect(shortened(["x".repeat(50)], 40)).toEqual(["x".repeat(50)]);
  });
});

test.describe("histograms", () => {
  const slots = (counts: Record<number, number>) => Array.from({ length: 64 }, (_, key) => ({ key, value: counts[key] ?? 0 }));
  const metric = (entries: unknown[], more: object = {}) => ({ map: "latency", type: "percpu_array", entries, ...more }) as never;
  const first = (one: Probe, ...windows: Record<string, never>[]) => firstHistogram(one, windows.map((ingress, seq) => ({ ...windowOf(seq, seq, []), ingress })))?.name;

  test("the view opens on the first histogram with data", () => {
    const table = metric([{ key: "A", value: 5 }], { type: "hash" });
    const [empty, full] = [metric(slots({}), { histogram: true }), metric(slots({ 14: 3 }), { histogram: true })];
    expect(first(probe(), { table, counters: metric(slots({ 1: 1 })), empty, full })).toBe("full");
    // The newest window may have counted nothing.
    expect(first(probe(), { table, one: empty, two: full }, { table, one: empty, two: empty })).toBe("two");
    expect(first(probe(), { table, counters: metric(slots({ 1: 1 })), empty })).toBe("counters");
    expect(first(probe(), { table, empty })).toBe("empty");
    expect(first(probe(), { table, more: metric([{ key: "A", value: 5 }, { key: "B", value: 5 }], { type: "hash" }) })).toBe("more");
  });

  test("those of several interfaces are histograms as well", () => {
    const one = probe();
    const entries = ["s0", "s1"].flatMap((name) => slots({ 14: 3, 16: 1 }).map(({ key, value }) => ({ key: { interface: name, key }, value })));
    const place = { direction: "ingress", name: "latency_ns" } as const;
    const document = { ...windowOf(1, 0, []), ingress: { table: metric([{ key: "A", value: 5 }], { type: "hash" }), latency_ns: metric(entries, { histogram: true }) } };
    expect(histogramOf(one, place, document.ingress.latency_ns)).toBe("log2");
    expect(firstHistogram(one, [document])).toEqual(place);
    expect([...bucketsOf(document, place, null)]).toEqual([[14, 6], [16, 2]]);
    expect(slotWords("s0 14", "log2", "latency_ns")).toMatch(/^s0 16.4\Dµs to 32.8\Dµs$/);
    expect(slotWords("14", "log2", "latency_ns")).toMatch(/^16.4/);
    expect(trimmed(document.ingress.latency_ns).entries).toHaveLength(34);
  });

  test("tables end with the last range that has counted", () => {
    expect(trimmed(metric(slots({ 14: 3, 17: 1 }))).entries.map(({ key }) => key)).toEqual(Array.from({ length: 18 }, (_, key) => key));
    expect(trimmed(metric(slots({}))).entries).toEqual([]);
  });
});
