// Lines over time. The same numbers stand in a legend, which is what screen readers get.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Line } from "../data/series.ts";
import { clock } from "../data/format.ts";
import { colour, lineColour, shown } from "./theme.ts";

const HEIGHT = 260;

export interface ChartProps {
  label: string;
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  /** Whether the last line is what is left over. */
  hasOthers: boolean;
  onPick?: (time: number) => void;
}

export function Chart({ label, times, lines, format, hasOthers, onPick }: ChartProps) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const newest = useRef({ format, onPick, hasOthers });
  newest.current = { format, onPick, hasOthers };
  const data = [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;
  const latest = useRef(data);
  latest.current = data;
  const names = lines.map((line) => line.label).join("\n");
  const mode = shown.value;

  useEffect(() => {
    const axis = { stroke: colour("muted"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 } };
    const made = new uPlot(
      {
        width: holder.current!.clientWidth,
        height: HEIGHT,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false } },
        axes: [
          { ...axis, values: (_, splits) => splits.map((time) => clock(time * 1000)), space: 90 },
          { ...axis, values: (_, splits) => splits.map((value) => newest.current.format(value)), size: 72 },
        ],
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] } },
        series: [
          {},
          ...lines.map((line, index) => ({
            label: line.label,
            stroke: lineColour(index, lines.length, newest.current.hasOthers),
            width: 1.5,
            points: { show: times.length < 40, size: 4 },
          })),
        ],
        hooks: { setCursor: [(plot) => tell(plot)] },
      },
      latest.current,
      holder.current!,
    );
    const cells = holder.current!.parentElement!.querySelectorAll<HTMLElement>("[data-line]");
    const tell = (plot: uPlot) => {
      const index = plot.cursor.idx;
      cells.forEach((cell, line) => {
        const values = latest.current[line + 1]!;
        const value = index == null ? values[values.length - 1] : values[index];
        cell.textContent = value == null ? "" : newest.current.format(value);
      });
    };
    plot.current = made;
    const resize = new ResizeObserver(() => made.setSize({ width: holder.current!.clientWidth, height: HEIGHT }));
    resize.observe(holder.current!);
    const click = () => {
      const index = made.cursor.idx;
      if (index != null && made.select.width === 0) newest.current.onPick?.(latest.current[0]![index]!);
    };
    made.over.addEventListener("click", click);
    return () => {
      resize.disconnect();
      made.destroy();
    };
  }, [names, mode, times.length < 40]);

  useEffect(() => plot.current?.setData(data), [times, lines]);

  const last = (line: Line) => line.values[line.values.length - 1];
  return (
    <figure class="chart" aria-label={label}>
      <div ref={holder} class="plot" aria-hidden="true" />
      <figcaption>
        <ul class="legend">
          {lines.map((line, index) => (
            <li>
              <span class={`swatch ${hasOthers && index === lines.length - 1 ? "others" : `line-${(index % 8) + 1}`}`} />
              <span class="name">{line.label}</span>
              <span class="number" data-line={index}>{last(line) == null ? "" : format(last(line)!)}</span>
            </li>
          ))}
        </ul>
      </figcaption>
    </figure>
  );
}
