// The choice of a range of time. It stands in the address.
import { clock, moment } from "../data/format.ts";
import { LAST, lengthOf, localText, type Range, rangeOf, rangeParameters } from "../data/range.ts";
import { Select } from "./basics.tsx";
import { choose, route } from "./route.ts";

/** The moments of the oldest and the newest window that is retained, in milliseconds. */
export interface Span {
  first: number;
  last: number;
}

/** Puts a range into the address; `null` for the newest windows. */
export const chooseRange = (range: Range | null) => choose(rangeParameters(range));

function Ends({ range, span }: { range: Range; span: Span }) {
  const from = Math.max(range.from, span.first);
  const to = Math.min(range.to, span.last);
  const set = (end: "from" | "to", text: string) => {
    const time = Date.parse(text);
    if (!Number.isNaN(time)) chooseRange({ ...range, [end]: time });
  };
  const shift = (sign: number) => chooseRange({ from: from + (sign * (to - from)) / 2, to: to + (sign * (to - from)) / 2 });
  const field = (end: "from" | "to", value: number) => (
    <label class="field"><span>{end === "from" ? "From" : "To"}</span><input type="datetime-local" step="1" value={localText(value)} onChange={(event) => set(end, event.currentTarget.value)} /></label>
  );
  return (
    <>
      {field("from", from)}
      {field("to", to)}
      <button type="button" onClick={() => shift(-1)}>Earlier</button>
      <button type="button" onClick={() => shift(1)}>Later</button>
    </>
  );
}

export function RangePicker({ span }: { span: Span | null }) {
  const { query } = route.value;
  const last = query.get("last");
  const range = rangeOf(query);
  const value = last ?? (range ? "chosen" : "");
  const length = span ? span.last - span.first : 0;
  const fitting = LAST.filter(([id]) => id === last || lengthOf(id)! < length);
  const set = (id: string) => {
    if (id === "chosen") return span && chooseRange({ from: span.first, to: span.last });
    choose({ last: id || null, from: null, to: null });
  };
  return (
    <fieldset class="range">
      <legend class="hidden">Time</legend>
      <Select label="Time" value={value} options={[["", "newest"], ...fitting, ...(last && !LAST.some(([id]) => id === last) ? [[last, `last ${last}`] as const] : []), ["chosen", "from … to …"]]} onChange={set} />
      {value === "chosen" && range && span && <Ends range={range} span={span} />}
      {range && <button type="button" onClick={() => chooseRange(null)}>Show newest</button>}
      {span && <p class="muted retained">Retained: {moment(span.first)} to {new Date(span.first).toDateString() === new Date(span.last).toDateString() ? clock(span.last) : moment(span.last)}</p>}
    </fieldset>
  );
}
