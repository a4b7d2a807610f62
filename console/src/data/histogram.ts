// Buckets: slots of arrays, and the distribution of a field over the entries of a table.
import type { Document, Metric, Probe } from "../api/types.ts";
import { isNumber, metricAt, type Place, rowsOf } from "./rows.ts";
import { inUnit } from "./format.ts";
import { mapsOf } from "./source.ts";

/** The meaning of slots: powers of two, powers of two as in BCC's `bpf_log2l`, or the numbers of the slots themselves. */
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

/** The slots of an array. With a `field`: for each slot, the number of entries whose field falls into it. */
export function bucketsOf(document: Document, place: Place, field: string | null): Map<number, number> {
  const slots = new Map<number, number>();
  const metric = metricAt(document, place);
  if (!metric) return slots;
  if (field === null) {
    for (const { key, value } of metric.entries) {
      if (typeof key === "number" && isNumber(value) && value > 0) slots.set(key, Number(value));
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

/**
 * The value below which this share of all values lies. Like Prometheus, this assumes that values spread evenly within a
 * slot. `null` if nothing was counted.
 */
export function percentile(slots: Map<number, number>, share: number, scale: Scale): number | null {
  const order = [...slots].filter(([, value]) => value > 0).sort(([a], [b]) => a - b);
  const total = order.reduce((sum, [, value]) => sum + value, 0);
  let left = total * share;
  for (const [slot, value] of order) {
    if (left <= value) {
      if (scale === "linear") return slot;
      const from = startOf(slot, scale);
      return from + (endOf(slot, scale) - from) * (left / value);
    }
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

/** The least value of a slot; 0 for the first slot. */
const startOf = (slot: number, scale: Scale) => (slot === 0 ? 0 : endOf(slot - 1, scale));

/** The lower end of a slot in words. */
export function slotLabel(slot: number, scale: Scale, name: string): string {
  if (scale === "linear") return String(slot);
  return slot === 0 ? "0" : inUnit(endOf(slot - 1, scale), name);
}

/** The values of a slot in words; the upper end belongs to the next slot. */
export function slotRange(slot: number, scale: Scale, name: string): string {
  if (scale === "linear") return `slot ${slot}`;
  return `${slotLabel(slot, scale, name)} to ${inUnit(endOf(slot, scale), name)}`;
}

/** The meaning of a metric's slots; `null` if its entries are not slots of a histogram. BCC's slots have no tag in documents. */
export function histogramOf(probe: Probe | undefined, place: Place, metric: Metric | undefined): Scale | null {
  if (!metric) return null;
  if (metric.histogram) return "log2";
  const source = probe?.config[place.direction]?.source;
  return source && mapsOf(source).some((map) => map.name === metric.map && map.bcc && map.histogram) ? "log2l" : null;
}
