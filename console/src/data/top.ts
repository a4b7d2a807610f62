// The summary of a probe's newest window: the largest keys of its main metric, or the distribution of a histogram.
import type { Document, Probe } from "../api/types.ts";
import { unitOf } from "./format.ts";
import { histogramOf, type Scale } from "./histogram.ts";
import { type Column, columnsOf, isSlots, isSpare, keyLabelOf, mainColumn, metricAt, type Place, placesOf, rowsOf, ruleOf, unitName } from "./rows.ts";
import { linesOf, pointsOf } from "./series.ts";

export interface Top {
  place: Place;
  /** The column whose numbers are shown, and the name that tells its unit. */
  field: Column;
  unit: string;
  /** The meaning of slots, if the lines are a histogram. */
  scale: Scale | null;
  keys: string[];
  /** True if the numbers are rates: those of counts. */
  perSecond: boolean;
  /** The largest keys, with their numbers. */
  lines: { label: string; value: number; bytes?: number }[];
}

/** True if a metric is cumulative. */
export function isCumulative(probe: Probe, place: Place): boolean {
  const metric = probe.config[place.direction]?.metrics?.find((metric) => metric.name === place.name);
  return metric ? !metric.init : false;
}

/** Tables with keys come first, then single numbers, then slots; the sums that belong to slots come last, because they are dull. */
function rank(document: Document, place: Place): number {
  const metric = metricAt(document, place)!;
  const base = metricAt(document, { ...place, name: place.name.replace(/_sum$/, "") });
  if (metric.entries.length === 0 || (base && base !== metric)) return 3;
  if (metric.histogram || isSlots(metric)) return 2;
  return /array$/.test(metric.type) || metric.entries[0]!.key === undefined ? 1 : 0;
}

/** The metric of a document that people look at first. */
export function mainPlace(document: Document): Place | undefined {
  const places = placesOf(document).map((place) => ({ place, rank: rank(document, place) }));
  return places.sort((a, b) => a.rank - b.rank)[0]?.place;
}

/** The largest keys of a probe's newest window, of the metric at `place` or the main one. */
export function topOf(probe: Probe, windows: Document[], most: number, place = mainPlace(windows[windows.length - 1]!)): Top | null {
  const newest = windows[windows.length - 1]!;
  const metric = place && metricAt(newest, place);
  if (!metric || metric.entries.length === 0) return null;
  const rows = rowsOf(metric);
  const columns = columnsOf(rows, metric.agg, keyLabelOf(probe, place));
  const field = mainColumn(columns, rows);
  if (!field) return null;
  const keys = columns.filter((column) => column.isKey && !isSpare(column, rows));
  const scale = histogramOf(probe, place, metric);
  // The sequence numbers of the last two windows may differ by more than 1.
  const stride = windows.length > 1 ? newest.window!.seq - windows[windows.length - 2]!.window!.seq : 1;
  const choice = { place, field: field.id, stride, by: keys.map((key) => key.id), top: most, cumulative: isCumulative(probe, place), perSecond: true };
  const rates = (id: string, top: number) => {
    const own = { ...choice, field: id, top, rule: ruleOf(probe, place, id) };
    return linesOf(pointsOf(windows, own).slice(-1), own).map(({ label, values }) => ({ label, value: values[0] ?? 0 }));
  };
  const lines = rates(field.id, most).filter((line) => line.value > 0);
  // Bytes are shown beside packets.
  const sizes = unitOf(unitName(field, place.name)).unit === "bytes" ? undefined : columns.find((column) => column.isNumber && !column.isKey && column.id !== field.id && unitOf(column.title).unit === "bytes");
  const bytes = new Map(sizes ? rates(sizes.id, Infinity).map((line) => [line.label, line.value]) : []);
  // The name of a histogram tells the unit of its slots. Its counts have no unit.
  const unit = scale ? "" : unitName(field, place.name);
  // The only slot of an array needs no name.
  const isOne = keys.length === 1 && rows.length === 1 && rows[0]!.key === 0;
  return { place, field, unit, scale, perSecond: ruleOf(probe, place, field.id) === "sum", keys: isOne ? [] : keys.map((key) => key.title), lines: lines.map((line) => ({ ...line, label: isOne ? "all" : line.label, bytes: bytes.get(line.label) })) };
}
