// Buckets: slots of arrays, and the distribution of a field over the entries of a table.
import type { Document } from "../api/types.ts";
import { isNumber, metricAt, type Place, rowsOf } from "./rows.ts";
import { inUnit } from "./format.ts";

export type Scale = "log2" | "linear";

export interface Buckets {
  /** The number of a slot and what it holds. */
  slots: Map<number, number>;
}

/** The slot of a number: that of its highest bit. */
export function slotOf(value: number | bigint): number {
  const whole = typeof value === "bigint" ? value : BigInt(Math.max(0, Math.trunc(value)));
  return whole <= 0n ? 0 : whole.toString(2).length - 1;
}

/** The slots of an array, or with a `field` how many entries have a number in each slot. */
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

/** The range of slots that hold something in any of the windows; `null` if none does. */
export function rangeOf(windows: Map<number, number>[]): { first: number; last: number } | null {
  let [first, last] = [Infinity, -Infinity];
  for (const slots of windows) {
    for (const [slot, value] of slots) {
      if (value > 0) [first, last] = [Math.min(first, slot), Math.max(last, slot)];
    }
  }
  return first <= last ? { first, last } : null;
}

/** The lower end of a slot in words. */
export function slotLabel(slot: number, scale: Scale, name: string): string {
  if (scale === "linear") return String(slot);
  return slot === 0 ? "0" : inUnit(2 ** slot, name);
}

export function slotRange(slot: number, scale: Scale, name: string): string {
  if (scale === "linear") return `slot ${slot}`;
  return `${slotLabel(slot, scale, name)} to ${inUnit(2 ** (slot + 1), name)}`;
}
