// Small lines without axes: the recent course of some numbers. They share one scale, and the numbers are beside them.
const WIDTH = 300;
const HEIGHT = 40;

/** Joins the points of a line, the newest at the right edge. */
function path(values: number[], length: number, most: number): string {
  const x = (index: number) => (WIDTH * (index + length - values.length)) / Math.max(1, length - 1);
  const y = (value: number) => 1 + (HEIGHT - 2) * (1 - value / most);
  return values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
}

/** Lines have at most `length` points. With fewer, the left part is empty. */
export function Spark({ label, lines, length }: { label: string; lines: number[][]; length: number }) {
  const most = Math.max(1e-9, ...lines.flat());
  return (
    <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <line class="floor" x1="0" x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
      {lines.map((values, index) => values.length > 1 && <polyline class={`line-${index + 1}`} points={path(values, length, most)} />)}
    </svg>
  );
}
