// Charts that the daemon has aggregated, as points and lines.
import type { Value } from "../api/types.ts";
import { plural } from "./format.ts";
import { keyLabel } from "./keys.ts";
import { rowOf } from "./rows.ts";
import type { Choice, Line, Point } from "./series.ts";

type Numbers = (number | bigint | null)[];

/** The answer of `GET .../series`, and of `GET .../series/history`. */
export interface Series {
  times: string[];
  seconds: number[];
  windows: number;
  left_out?: number;
  /** The server of the numbers, if they do not come from windows. */
  source?: string;
  series: { key: Value; total?: number | bigint; values: Numbers }[];
  others?: { keys: number; total?: number | bigint; values: Numbers };
}

/** The points of a chart. They have no groups: the daemon has already made the lines. */
export const pointsIn = (chart: Series): Point[] =>
  chart.times.map((time, place) => ({ seq: place + 1, time: Date.parse(time) / 1000, seconds: chart.seconds[place] ?? 0, groups: new Map() }));

/** The counts of slots at each point of a chart whose keys are slots. */
export const slotsIn = (chart: Series): Map<number, number>[] =>
  chart.times.map((_, place) => new Map(chart.series.flatMap(({ key, values }) => (typeof key === "number" && values[place] ? [[key, Number(values[place])] as const] : []))));

/** The label of a key's line. */
export const labelOf = (key: Value, { by, names }: Pick<Choice, "by" | "names">) => keyLabel(rowOf({ key, value: 0 }), by, names) || "all";

/** The lines of a chart: its keys, and all others together. */
export function linesIn(chart: Series, choice: Pick<Choice, "by" | "perSecond" | "names" | "only">): Line[] {
  const scaled = (values: Numbers) =>
    values.map((value, place) => {
      if (value === null) return null;
      const seconds = chart.seconds[place] ?? 0;
      return choice.perSecond && seconds > 0 ? Number(value) / seconds : Number(value);
    });
  const lines = chart.series.map(({ key, total, values }) => ({ label: labelOf(key, choice), total: Number(total ?? 0), values: scaled(values) }));
  const { others } = chart;
  if (choice.only) return lines.filter(({ label }) => label === choice.only);
  return others ? [...lines, { label: plural(others.keys, "other"), total: Number(others.total ?? 0), values: scaled(others.values), isOthers: true }] : lines;
}
