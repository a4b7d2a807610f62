// Buckets: slots of arrays, and the distribution of a field over the entries of a table.
import type { Document, Metric, Probe, Value } from "../api/types.ts";
import { interfaceIn, isNumber, isSlots, metricAt, type Place, placesOf, rowsOf } from "./rows.ts";
import { inUnit } from "./format.ts";
import { mapsOf } from "./source.ts";

/** The meaning of slots: powers of two, powers of two as in BCC's `bpf_log2l`, or the slot numbers themselves. */
export type Scale = "log2" | "log2l" | "linear";

export interface Buckets {
  /** The number of a slot and its count. */
  slots: Map<number, number>;
}

/** The slot of a number: the position of its highest bit. */
export function slotOf(value: number | bigint): number {
  const whole = typeof value === "bigint" ? value : BigInt(Math.max(0, Math.trunc(value)));
  return whole <= 0n ? 0 : whole.toString(2).length - 1;
}

/** The slot of a key, which is a slot, or a slot with the name of an interface; `null` for any other key. */
function slotIn(key: Value | undefined): number | null {
  if (typeof key === "number") return key;
  if (interfaceIn({ key }) === null) return null;
  const rest = Object.values(key as Record<string, Value>).filter((part) => typeof part !== "string");
  return rest.length === 1 && typeof rest[0] === "number" ? rest[0] : null;
}

/** A histogram without the empty slots after the last one that has counted. */
export function trimmed(metric: Metric): Metric {
  const last = Math.max(-1, ...metric.entries.map(({ key, value }) => (isNumber(value) && value == 0 ? -1 : (slotIn(key) ?? Infinity))));
  return { ...metric, entries: metric.entries.filter(({ key }) => (slotIn(key) ?? 0) <= last) };
}

/** The slots of an array, those of all interfaces together. With a `field`: for each slot, the number of entries whose field falls into it. */
export function bucketsOf(document: Document, place: Place, field: string | null): Map<number, number> {
  const slots = new Map<number, number>();
  const metric = metricAt(document, place);
  if (!metric) return slots;
  if (field === null) {
    for (const { key, value } of metric.entries) {
      const slot = slotIn(key);
      if (slot !== null && isNumber(value) && value > 0) slots.set(slot, (slots.get(slot) ?? 0) + Number(value));
    }
    return slots;
  }
  for (const row of rowsOf(metric)) {
    const value = row[field];
    if (!isNumber(value)) continue;
    const slot = slotOf(value);
    slots.set(slot, (slots.get(slot) ?? 0) + 1);
  }
  return slots;
}

export function difference(now: Map<number, number>, before: Map<number, number> | undefined): Map<number, number> {
  if (!before) return now;
  return new Map([...now].map(([slot, value]) => [slot, Math.max(0, value - (before.get(slot) ?? 0))]));
}

/** The quantiles that are shown. */
export const PERCENTILES = [["p50", 0.5], ["p95", 0.95], ["p99", 0.99]] as const;

/** A bound that this share of all values does not exceed, the end of a slot, as in documents and on the command line. `null` if nothing was counted. */
export function percentile(slots: Map<number, number>, share: number, scale: Scale): number | null {
  const order = [...slots].filter(([, value]) => value > 0).sort(([a], [b]) => a - b);
  const total = order.reduce((sum, [, value]) => sum + value, 0);
  let left = total * share;
  for (const [slot, value] of order) {
    if (left <= value) return lastOf(slot, scale);
    left -= value;
  }
  return null;
}

/** The range of slots that are not empty in at least one window; `null` if all are empty. */
export function rangeOf(windows: Map<number, number>[]): { first: number; last: number } | null {
  let [first, last] = [Infinity, -Infinity];
  for (const slots of windows) {
    for (const [slot, value] of slots) {
      if (value > 0) [first, last] = [Math.min(first, slot), Math.max(last, slot)];
    }
  }
  return first <= last ? { first, last } : null;
}

/** The end of a slot. The value itself belongs to the next slot. */
const endOf = (slot: number, scale: Scale) => 2 ** (scale === "log2" ? slot + 1 : slot);

/** The largest value of a slot. */
const lastOf = (slot: number, scale: Scale) => (scale === "linear" ? slot : endOf(slot, scale) - 1);

/** The lower end of a slot in words. */
export function slotLabel(slot: number, scale: Scale, name: string): string {
  if (scale === "linear") return String(slot);
  return slot === 0 ? "0" : inUnit(endOf(slot - 1, scale), name);
}

/** The smallest and the largest value of a slot in words. */
export function slotRange(slot: number, scale: Scale, name: string): string {
  if (scale === "linear") return `slot ${slot}`;
  return `${slotLabel(slot, scale, name)} to ${inUnit(lastOf(slot, scale), name)}`;
}

/** The meaning of a metric's slots; `null` if it is not a histogram. Documents do not mark the histograms of BCC. */
export function histogramOf(probe: Probe | undefined, place: Place, metric: Metric | undefined): Scale | null {
  if (!metric) return null;
  if (metric.histogram) return "log2";
  const source = probe?.config[place.direction]?.source;
  if (source && mapsOf(source).some((map) => map.name === metric.map && map.bcc && map.histogram)) return "log2l";
  return null;
}

/** A label whose last word is a slot, with the range of the slot. */
export const slotWords = (label: string, scale: Scale, name: string) => label.replace(/(^| )(\d+)$/, (_, gap, slot) => gap + slotRange(Number(slot), scale, name));

/** The number of newest windows that tell whether a histogram has data. */
const RECENT = 20;

/** The metric that the view of histograms opens on: a histogram with data, or another array of slots with data. Of
 * tables, one whose entries spread. */
export function firstHistogram(probe: Probe, documents: Document[]): Place | undefined {
  const newest = documents[documents.length - 1];
  if (!newest) return undefined;
  const recent = documents.slice(-RECENT);
  const rank = (place: Place) => {
    const metric = metricAt(newest, place)!;
    const isHistogram = histogramOf(probe, place, metric) !== null;
    if (isHistogram || isSlots(metric)) {
      const hasData = recent.some((document) => bucketsOf(document, place, null).size > 0);
      return hasData ? (isHistogram ? 0 : 1) : 2;
    }
    return metric.entries.length > 1 ? 3 : metric.entries.length > 0 ? 4 : 5;
  };
  return placesOf(newest).map((place) => ({ place, rank: rank(place) })).sort((a, b) => a.rank - b.rank)[0]?.place;
}
