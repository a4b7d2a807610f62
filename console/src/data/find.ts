// The rows of all probes' newest windows that have an address or another key.
import type { Document, Metric, Probe } from "../api/types.ts";
import { address } from "./format.ts";
import { keyLabel } from "./keys.ts";
import { isPort } from "./names.ts";
import { type Column, columnsOf, isNumber, keyLabelOf, mainColumn, metricAt, type Place, placesOf, type Row, rowsOf, ruleOf } from "./rows.ts";
import { isCumulative } from "./top.ts";

/** The rows of one metric that were found. */
export interface Found {
  place: Place;
  keys: Column[];
  /** The columns of numbers that are not all zeros in these rows. */
  numbers: Column[];
  /** The columns whose numbers are rates per second: those of counts. */
  rates: Set<string>;
  rows: Row[];
  /** The number of rows that were found. `rows` are the largest that are not 0. */
  total: number;
}

/** Tells whether a key matches. Text that ends with `.` or `:` is the beginning of an address. A whole address or a
 * number must be equal. For other keys a part is enough. */
export function matcher(wanted: string): (row: Row, keys: Column[]) => boolean {
  const text = wanted.trim().toLowerCase();
  const isBegin = /[.:]$/.test(text);
  const isWhole = !isBegin && (/^[\d.]+$/.test(text) || /^[0-9a-f:.]*:[0-9a-f:.]*$/.test(text));
  return (row, keys) => keys.some(({ id }) => {
    const value = row[id];
    if (value === undefined || value === null) return false;
    if (isNumber(value)) return (isPort(id) || id === "key") && String(value) === text;
    const own = address(String(value)).toLowerCase();
    return isBegin ? own.startsWith(text) : isWhole ? own === text : own.includes(text);
  });
}

/** The label of a row's line in the chart of its metric. */
export const labelOfRow = (row: Row, keys: Column[], names = false) => keyLabel(row, keys.map(({ id }) => id), names);

/** The rows as rates: the counts of the newest window per second. */
function asRates(rows: Row[], before: Row[], counts: string[], keys: Column[], isSum: boolean, seconds: number): Row[] {
  const earlier = new Map(isSum ? before.map((row) => [labelOfRow(row, keys), row]) : []);
  return rows.map((row) => {
    const then = earlier.get(labelOfRow(row, keys));
    const rates = counts.map((id) => [id, Math.max(0, Number(row[id] ?? 0) - Number(then?.[id] ?? 0)) / seconds] as const);
    return { ...row, ...Object.fromEntries(rates) };
  });
}

function inMetric(probe: Probe, windows: Document[], place: Place, metric: Metric, matches: ReturnType<typeof matcher>, most: number): Found[] {
  const newest = windows[windows.length - 1]!;
  const rows = rowsOf(metric);
  const columns = columnsOf(rows, metric.agg, keyLabelOf(probe, place));
  const keys = columns.filter((column) => column.isKey);
  if (/array$/.test(metric.type)) return [];
  const hits = rows.filter((row) => matches(row, keys));
  if (hits.length === 0) return [];
  const counts = columns.filter((column) => !column.isKey && column.isNumber && ruleOf(probe, place, column.id) === "sum").map((column) => column.id);
  const isSum = isCumulative(probe, place);
  const earlier = windows.length > 1 ? metricAt(windows[windows.length - 2]!, place) : undefined;
  // The difference of two sums covers all the time between them, including windows that are not retained.
  const since = windows[windows.length - 2]?.window;
  const isGap = isSum && earlier && newest.window && since && since.seq !== newest.window.seq - 1;
  const seconds = isGap ? (Date.parse(newest.window!.end) - Date.parse(since!.end)) / 1000 : (newest.window?.duration_ns ?? 0) / 1e9;
  // A sum without an earlier window has no rate yet.
  const hasRates = seconds > 0 && (!isSum || earlier !== undefined || newest.window?.seq === 1);
  const shown = hasRates ? asRates(hits, earlier ? rowsOf(earlier) : [], counts, keys, isSum, seconds) : hits;
  const main = mainColumn(columns, shown);
  const isBusy = (row: Row) => !hasRates || counts.length === 0 || counts.some((id) => Number(row[id]) !== 0);
  const busy = shown.filter(isBusy);
  const sorted = main ? busy.sort((a, b) => Number(b[main.id] ?? 0) - Number(a[main.id] ?? 0)) : busy;
  const largest = sorted.slice(0, most);
  const numbers = columns.filter((column) => !column.isKey && largest.some((row) => row[column.id] !== 0 && row[column.id] !== undefined));
  return [{ place, keys, numbers, rates: new Set(hasRates ? counts : []), rows: largest, total: hits.length }];
}

/** The metrics of a probe's newest window with matching keys. */
export function findIn(probe: Probe, windows: Document[], wanted: string, most: number): Found[] {
  const newest = windows[windows.length - 1];
  if (!newest || !wanted.trim()) return [];
  const matches = matcher(wanted);
  return placesOf(newest).flatMap((place) => inMetric(probe, windows, place, metricAt(newest, place)!, matches, most));
}
