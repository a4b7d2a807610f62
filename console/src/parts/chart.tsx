// Lines over time. For screen readers, a legend has the same numbers.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Line } from "../data/series.ts";
import { clock, moment } from "../data/format.ts";
import { colour, lineColour, shown } from "./theme.ts";

/** The usual height in pixels. */
const HEIGHT = 260;
/** The time that is shown before and after a single point, in seconds. */
const ALONE = 30;

export interface ChartProps {
  label: string;
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  /** True if the last line is the sum of all other groups. */
  hasOthers: boolean;
  /** True if ticks are at powers of two, as for bytes. */
  binary?: boolean;
  /** The range of time that is drawn, in seconds; by default the range of the points. */
  range?: { from: number; to: number } | null;
  /** The end of the scale, if charts side by side share one. */
  most?: number;
  /** Moments that are marked, in seconds. */
  marks?: number[];
  /** In pixels. */
  height?: number;
  /** The legend's title while the pointer is elsewhere. */
  newest?: string;
  /** Called with the number of a line that was chosen in the legend. */
  onPick?: (line: number) => void;
  /** Called with the range that was drawn with the pointer, in seconds; with `null` to show all again. */
  onZoom?: (range: { from: number; to: number } | null) => void;
}

/** A narrower selection counts as a click, in pixels. */
const NARROWEST = 6;

const DAY = 86_400;
const NO_MARKS: number[] = [];
const POWERS = Array.from({ length: 60 }, (_, exponent) => 2 ** exponent);

/** Draws a dashed line at each moment. */
function drawMarks(plot: uPlot, marks: number[]) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("muted");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const time of marks) {
    const x = Math.round(plot.valToPos(time, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** The labels of times; with the day if the range is longer than a day. */
const timeLabel = (splits: number[]) => {
  const isLong = splits.length > 1 && splits[splits.length - 1]! - splits[0]! > DAY;
  return (time: number) => (isLong ? moment(time * 1000).slice(5, 16) : clock(time * 1000));
};

export function Chart({ label, times, lines, format, hasOthers, binary = false, range = null, most, marks = NO_MARKS, height = HEIGHT, newest: latestName = "newest window", onPick, onZoom }: ChartProps) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const newest = useRef({ format, hasOthers, range, most, marks, onZoom });
  newest.current = { format, hasOthers, range, most, marks, onZoom };
  const data = [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;
  const latest = useRef(data);
  latest.current = data;
  const [at, setAt] = useState<number | null>(null);
  const names = lines.map((line) => line.label).join("\n");
  const mode = shown.value;

  useEffect(() => {
    const element = holder.current!;
    const axis = { stroke: colour("muted"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 } };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height,
        // The label of the last time needs room at the right.
        padding: [8, 28, 0, 0],
        legend: { show: false },
        // A zoom is a range of time in the address, so new windows do not end it.
        cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false, setScale: false } },
        axes: [
          { ...axis, values: (_, splits) => splits.map(timeLabel(splits)), space: 90, ...(height < HEIGHT && { size: 32 }) },
          { ...axis, values: (_, splits) => splits.map((value) => newest.current.format(value)), size: 80, ...(binary && { incrs: POWERS }) },
        ],
        scales: {
          // With a single window, the chart's own scale would end far in the future.
          x: { range: (plot, from, to) => {
            const { range } = newest.current;
            if (range) return [range.from, range.to];
            return plot.data[0].length === 1 ? [from - ALONE, from + ALONE] : [from, to];
          } },
          y: { range: (_, __, max) => {
            const end = newest.current.most ?? max;
            return [0, end > 0 ? end * 1.05 : 1];
          } },
        },
        series: [
          {},
          ...lines.map((line, index) => ({
            label: line.label,
            stroke: lineColour(index, lines.length, newest.current.hasOthers),
            width: 1.5,
            points: { show: times.length < 40, size: 4 },
          })),
        ],
        hooks: {
          draw: [(plot) => drawMarks(plot, newest.current.marks)],
          setCursor: [(plot) => setAt(plot.cursor.idx ?? null)],
          setSelect: [(plot) => {
            const { left, width } = plot.select;
            if (width < NARROWEST) return;
            plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            newest.current.onZoom?.({ from: plot.posToVal(left, "x"), to: plot.posToVal(left + width, "x") });
          }],
        },
      },
      latest.current,
      element,
    );
    plot.current = made;
    const resize = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    made.over.addEventListener("dblclick", () => newest.current.onZoom?.(null));
    return () => {
      resize.disconnect();
      made.destroy();
    };
  }, [names, mode, binary, times.length < 40]);

  useEffect(() => plot.current?.setData(data), [times, lines, range?.from, range?.to, most, marks.join()]);

  // The legend shows the values under the pointer, or else the newest ones.
  const value = (line: Line) => line.values[at ?? line.values.length - 1];
  return (
    <figure class="chart" aria-label={label}>
      <div ref={holder} class="plot" aria-hidden="true" />
      <figcaption>
        <p class="muted at">{at !== null && times[at] ? clock(times[at] * 1000) : latestName}</p>
        <ul class="legend">
          {lines.map((line, index) => (
            <li>
              <span aria-hidden="true" class={`swatch ${hasOthers && index === lines.length - 1 ? "others" : `line-${(index % 8) + 1}`}`} />
              {onPick && !line.isOthers ? <button type="button" class="name" title="Show this line alone" onClick={() => onPick(index)}>{line.label}</button> : <span class="name">{line.label}</span>}
              <span class="number">{value(line) == null ? "" : format(value(line)!)}</span>
            </li>
          ))}
        </ul>
      </figcaption>
    </figure>
  );
}
