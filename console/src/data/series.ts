// Windows as lines of a chart: one point for each window, one line for each of the largest keys.
import { plural } from "./format.ts";
import { keyLabel } from "./keys.ts";
import type { Document, Joining } from "../api/types.ts";
import type { Range } from "./range.ts";
import { isNumber, metricAt, type Place, rowsOf } from "./rows.ts";

export interface Choice {
  place: Place;
  /** The column that is drawn. */
  field: string;
  /** The columns of the key that make lines; none for one line of everything. */
  by: string[];
  top: number;
  /** True if numbers are cumulative, so that windows are differences. */
  cumulative: boolean;
  /** True if numbers are sums since the beginning: the newest one is the total. */
  standing?: boolean;
  /** How two numbers become one. Only counts, whose rule is `sum`, have differences, rates and others. */
  rule?: Joining;
  perSecond: boolean;
  /** The step between the windows that are here: 1: all, 2: every second one. */
  stride?: number;
  /** True if ports and protocols are shown with their names. */
  names?: boolean;
  /** The label of the only group that is drawn; empty for the largest groups. */
  only?: string;
}

export interface Point {
  seq: number;
  /** The end of the window, in seconds. */
  time: number;
  seconds: number;
  groups: Map<string, number>;
}

export interface Line {
  label: string;
  values: (number | null)[];
  total: number;
  /** True if the line is the sum of all other groups. */
  isOthers?: boolean;
}

const isCount = ({ rule = "sum" }: Pick<Choice, "rule">) => rule === "sum";

/** Puts a number into its group, by the rule. */
function join(groups: Map<string, number>, label: string, value: number, { rule = "sum" }: Pick<Choice, "rule">) {
  const before = groups.get(label);
  groups.set(label, before === undefined ? value : rule === "sum" ? before + value : rule === "min" ? Math.min(before, value) : Math.max(before, value));
}

/** The numbers of a field by group, in one window. */
export function groupsOf(document: Document, choice: Pick<Choice, "place" | "field" | "by" | "names" | "rule">): Map<string, number> {
  const groups = new Map<string, number>();
  const metric = metricAt(document, choice.place);
  if (!metric) return groups;
  for (const row of rowsOf(metric)) {
    const value = row[choice.field];
    if (!isNumber(value)) continue;
    join(groups, keyLabel(row, choice.by, choice.names), Number(value), choice);
  }
  return groups;
}

/** The points of documents, oldest first. If the metric is cumulative, the first document is only the start of the
 * first window. */
export function pointsOf(documents: Document[], choice: Choice): Point[] {
  const points: Point[] = [];
  let before: { seq: number; end: number; groups: Map<string, number> } | null = null;
  const stride = choice.stride ?? 1;
  for (const document of documents) {
    const { window } = document;
    if (!window) continue;
    const all = groupsOf(document, choice);
    const end = Date.parse(window.end) / 1000;
    let seconds = (window.duration_ns ?? Math.max(0, Date.parse(window.end) - Date.parse(window.start)) * 1e6) / 1e9;
    let groups = all;
    if (choice.cumulative && isCount(choice)) {
      const begins: Map<string, number> | undefined = before && before.seq >= window.seq - stride ? before.groups : undefined;
      if (before && begins && before.seq !== window.seq - 1) seconds = end - before.end;
      before = { seq: window.seq, end, groups: all };
      // Before the first window of a probe all sums are 0.
      if (!begins && window.seq !== 1) continue;
      groups = new Map([...all].map(([label, value]) => [label, Math.max(0, value - (begins?.get(label) ?? 0))]));
    }
    points.push({ seq: window.seq, time: end, seconds, groups });
  }
  return points;
}

/** The points of documents that belong to a range of time. */
export function seriesOf(documents: Document[], choice: Choice, range: Range | null): Point[] {
  const points = pointsOf(documents, choice);
  if (!range) return points;
  return points.filter((point) => point.time * 1000 > range.from && (point.time - point.seconds) * 1000 < range.to);
}

const scaled = (value: number, point: Point, choice: Choice) =>
  choice.perSecond && isCount(choice) && point.seconds > 0 ? value / point.seconds : value;

/** The lines of a chart: the largest groups over all points. Counts also have one line for the sum of the others. */
export function linesOf(points: Point[], choice: Choice): Line[] {
  const totals = new Map<string, number>();
  for (const point of choice.standing ? points.slice(-1) : points) {
    for (const [label, value] of point.groups) join(totals, label, value, choice);
  }
  const order = choice.only ? [[choice.only, totals.get(choice.only) ?? 0] as const] : [...totals].sort((a, b) => b[1] - a[1]);
  // Groups that contain only zeros, such as most slots of a histogram, are left out.
  const shown = order.slice(0, choice.top).filter(([, total], place) => place === 0 || total !== 0 || !isCount(choice));
  const lines: Line[] = shown.map(([label, total]) => ({
    label: label || "all",
    total,
    values: points.map((point) => {
      const value = point.groups.get(label) ?? (isCount(choice) ? 0 : null);
      return value === null ? null : scaled(value, point, choice);
    }),
  }));
  const rest = order.slice(shown.length).reduce((sum, [, value]) => sum + value, 0);
  if (rest !== 0 && isCount(choice)) {
    const names = new Set(shown.map(([label]) => label));
    const others = points.map((point) => {
      let sum = 0;
      for (const [label, value] of point.groups) if (!names.has(label)) sum += value;
      return scaled(sum, point, choice);
    });
    lines.push({
      label: plural(order.length - shown.length, "other"),
      total: rest,
      values: others,
      isOthers: true,
    });
  }
  return lines;
}

/** The lines with all numbers multiplied by a factor, for another unit. */
export const multiplied = (lines: Line[], factor: number): Line[] =>
  factor === 1 ? lines : lines.map((line) => ({ ...line, values: line.values.map((value) => value === null ? null : value * factor) }));

/** Times and lines with a gap wherever windows are missing. */
export function withGaps(points: Point[], lines: Line[], stride = 1): { times: number[]; lines: Line[] } {
  const times: number[] = [];
  const values: (number | null)[][] = lines.map(() => []);
  points.forEach((point, index) => {
    const last = points[index - 1];
    if (last && point.seq > last.seq + stride) {
      times.push((last.time + point.time) / 2);
      values.forEach((line) => line.push(null));
    }
    times.push(point.time);
    values.forEach((line, place) => line.push(lines[place]!.values[index] ?? null));
  });
  return { times, lines: lines.map((line, place) => ({ ...line, values: values[place]! })) };
}
