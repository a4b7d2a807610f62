// A map of bucket counts over time. Each column is a window or a point of a chart. A darker cell has
// a larger count.
import { useEffect, useRef, useState } from "preact/hooks";
import { clock, count, moment } from "../data/format.ts";
import { colour, shown } from "./theme.ts";

const ROW = 14;
const LEFT = 76;
const BOTTOM = 20;
/** The seconds after which a time needs its date. */
const DAY = 86_400;

export interface HeatmapProps {
  label: string;
  times: number[];
  windows: Map<number, number>[];
  first: number;
  last: number;
  slotLabel: (slot: number) => string;
  slotRange: (slot: number) => string;
  /** The name of a column. */
  each: string;
}

export function Heatmap({ label, times, windows, first, last, slotLabel, slotRange, each }: HeatmapProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(600);
  const [at, setAt] = useState<{ column: number; slot: number } | null>(null);
  const rows = last - first + 1;
  const height = rows * ROW + BOTTOM;
  const mode = shown.value;
  const cell = (width - LEFT) / Math.max(1, windows.length);
  const isLong = times.length > 0 && times[times.length - 1]! - times[0]! > DAY;
  const words = isLong ? moment : clock;

  useEffect(() => {
    const holder = canvas.current!.parentElement!;
    const resize = new ResizeObserver(() => setWidth(holder.clientWidth));
    resize.observe(holder);
    return () => resize.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current!;
    const ratio = devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = height * ratio;
    const context = element.getContext("2d")!;
    context.scale(ratio, ratio);
    context.clearRect(0, 0, width, height);
    const most = Math.max(1, ...windows.flatMap((slots) => [...slots.values()]));
    context.fillStyle = colour("heat");
    windows.forEach((slots, column) => {
      for (const [slot, value] of slots) {
        if (value <= 0) continue;
        context.globalAlpha = 0.12 + 0.88 * Math.sqrt(value / most);
        context.fillRect(LEFT + column * cell, (last - slot) * ROW, Math.max(1, cell - (cell > 4 ? 1 : 0)), ROW - 1);
      }
    });
    context.globalAlpha = 1;
    context.fillStyle = colour("muted");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    const step = Math.ceil(rows / 24);
    for (let slot = first; slot <= last; slot += step) context.fillText(slotLabel(slot), LEFT - 6, (last - slot) * ROW + ROW / 2);
    context.textAlign = "left";
    const room = isLong ? 130 : 56;
    const gap = Math.max(1, Math.ceil((room + 34) / Math.max(cell, 0.1)));
    for (let column = 0; column < times.length; column += gap) {
      if (LEFT + column * cell + room < width) context.fillText(words(times[column]! * 1000), LEFT + column * cell, height - BOTTOM / 2);
    }
  }, [width, height, windows, mode]);

  const find = (event: MouseEvent) => {
    const column = Math.floor((event.offsetX - LEFT) / cell);
    const slot = last - Math.floor(event.offsetY / ROW);
    setAt(column >= 0 && column < windows.length && slot >= first && slot <= last ? { column, slot } : null);
  };
  const found = at && `${words(times[at.column]! * 1000)}, ${slotRange(at.slot)}: ${count(windows[at.column]?.get(at.slot) ?? 0)}`;
  return (
    <figure class="heatmap">
      <div class="canvas-holder">
        <canvas ref={canvas} role="img" aria-label={label} style={{ width: `${width}px`, height: `${height}px` }} onMouseMove={find} onMouseLeave={() => setAt(null)} />
      </div>
      <figcaption class="muted">{found ?? `Each column is a ${each}; the stronger the colour, the more it holds. Point at a cell for its number.`}</figcaption>
    </figure>
  );
}
