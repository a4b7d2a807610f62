// Several nodes side by side: which of them a filter shows, and charts that can be compared.
import type { NodeChart, NodeStatus } from "../api/nodes.ts";
import type { Document } from "../api/types.ts";
import { linesIn } from "./aggregated.ts";
import { plural } from "./format.ts";
import type { Choice, Line } from "./series.ts";

/** True if a node has every word of a filter: a label `KEY=VALUE`, or a part of its name. */
export function isShown(node: NodeStatus, filter: string): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const labels = Object.entries(node.labels ?? {}).map(([key, value]) => `${key}=${value}`.toLowerCase());
  return words.every((word) => (word.includes("=") ? labels.includes(word) : node.name.toLowerCase().includes(word)));
}

/** The traffic in a second. */
export interface NodeRate {
  packets: number;
  bits: number;
}

/** The traffic rates of each node between two lists, by the node's clock. A node whose counter has fallen has no rate. */
export function ratesOf(before: NodeStatus[], now: NodeStatus[]): Map<string, NodeRate> {
  const then = new Map(before.map(({ name, traffic }) => [name, traffic]));
  return new Map(now.flatMap(({ name, traffic }) => {
    const last = then.get(name);
    const seconds = last && traffic ? (Date.parse(traffic.time) - Date.parse(last.time)) / 1000 : 0;
    if (!last || !traffic || seconds <= 0 || traffic.packets < last.packets || traffic.bytes < last.bytes) return [];
    return [[name, { packets: (traffic.packets - last.packets) / seconds, bits: (8 * (traffic.bytes - last.bytes)) / seconds }]];
  }));
}

/** The most points of a chart that is shown beside charts of other nodes. */
const MOST_POINTS = 300;
/** The steps of a chart in seconds. Longer steps are multiples of a day. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 43_200];

const UNITS: Record<string, number> = { ms: 0.001, s: 1, m: 60, h: 3_600, d: 86_400 };

/** The seconds of an interval such as `1m30s`. */
export const secondsIn = (interval: string) => [...interval.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)].reduce((sum, [, number, unit]) => sum + Number(number) * UNITS[unit!]!, 0);

/** The longest interval of a probe, in seconds. For a probe without interval: the longest duration of its newest windows. */
export function windowSeconds(nodes: NodeStatus[], probe: string, documents: Document[]): number {
  const intervals = nodes.flatMap((node) => node.probes.find(({ name }) => name === probe)?.interval ?? []).map(secondsIn);
  return Math.max(0.001, ...(intervals.length > 0 ? intervals : documents.map(({ window }) => (window?.duration_ns ?? 1e9) / 1e9)));
}

/** The step of a chart in seconds; `null` if each window may be a point. Windows end some milliseconds early or late.
 * So each step has room for two windows, and none is empty. */
export function stepFor(seconds: number, window: number): number | null {
  if (seconds <= MOST_POINTS * window * 1.1) return null;
  const least = Math.max(seconds / MOST_POINTS, 2 * window * 0.95);
  return STEPS.find((step) => step >= least) ?? Math.ceil(least / 86_400) * 86_400;
}

/** The number of keys from each node. It exceeds `top`: a key may be small on one node, but large over all. */
export const keysOf = (top: number) => Math.min(100, Math.max(20, 4 * top));

export interface Panel {
  lines: Line[];
  hasOthers: boolean;
}

const added = (values: (number | null)[]) => {
  let sum = 0;
  return values.map((value) => (value === null ? null : (sum += value)));
};

const sumOf = (lines: Line[], length: number) =>
  Array.from({ length }, (_, place) => {
    const known = lines.map((line) => line.values[place] ?? null).filter((value) => value !== null);
    return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) : null;
  });

/**
 * The lines of each node. All nodes have the same keys in the same order, the largest over all nodes, so that a key has
 * one colour. `totals` adds the points up.
 */
export function panelsOf(charts: NodeChart[], choice: Pick<Choice, "by" | "perSecond" | "names">, top: number, totals: boolean): Map<string, Panel> {
  const own = charts.flatMap(({ name, chart }) => {
    if (!chart) return [];
    const lines = linesIn(chart, choice);
    return [{ name, chart, keys: lines.slice(0, chart.series.length), others: lines.slice(chart.series.length) }];
  });
  const sums = new Map<string, number>();
  for (const { keys } of own) for (const line of keys) sums.set(line.label, (sums.get(line.label) ?? 0) + line.total);
  const labels = [...sums].sort((a, b) => b[1] - a[1]).slice(0, top).map(([label]) => label);
  return new Map(own.map(({ name, chart, keys, others }) => {
    const length = chart.times.length;
    const isCount = chart.shows === "increase";
    // A node sends no numbers for a key that belongs to its sum of all others.
    const absent = (label: string): Line => ({ label, total: 0, values: Array(length).fill(isCount && others.length === 0 ? 0 : null) });
    const lines = labels.map((label) => keys.find((line) => line.label === label) ?? absent(label));
    const rest = [...keys.filter((line) => !labels.includes(line.label)), ...others];
    const count = rest.length - others.length + (chart.others?.keys ?? 0);
    // Only counts can be added up.
    const hasOthers = isCount && rest.length > 0;
    if (hasOthers) lines.push({ label: plural(count, "other"), total: rest.reduce((sum, line) => sum + line.total, 0), values: sumOf(rest, length) });
    return [name, { lines: totals && isCount ? lines.map((line) => ({ ...line, values: added(line.values) })) : lines, hasOthers }];
  }));
}

/** The largest number of all panels: their common scale ends there. */
export function mostOf(panels: Iterable<Panel>): number {
  let most = 0;
  for (const { lines } of panels) for (const { values } of lines) for (const value of values) most = Math.max(most, value ?? 0);
  return most;
}
