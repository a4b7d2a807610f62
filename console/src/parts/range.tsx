// The choice of a range of time, kept in the address.
import { clock, moment } from "../data/format.ts";
import { LAST, lengthOf, PAST, localText, type Range, rangeOf, rangeParameters } from "../data/range.ts";
import { Select } from "./basics.tsx";
import { choose, route } from "./route.ts";

/** The moments of the oldest and the newest window that is retained, in milliseconds. */
export interface Span {
  first: number;
  last: number;
}

/** Puts a range into the address; `null` for the newest windows. */
export const chooseRange = (range: Range | null) => choose(rangeParameters(range));

function Ends({ range, span, isBounded }: { range: Range; span: Span; isBounded: boolean }) {
  const from = isBounded || range.from === 0 ? Math.max(range.from, span.first) : range.from;
  const to = Math.min(range.to, span.last);
  const set = (end: "from" | "to", text: string) => {
    const time = Date.parse(text);
    if (!Number.isNaN(time)) chooseRange({ ...range, [end]: time });
  };
  const shift = (sign: number) => chooseRange({ from: from + (sign * (to - from)) / 2, to: to + (sign * (to - from)) / 2 });
  const wider = () => chooseRange({ from: from - (to - from) / 2, to: to + (to - from) / 2 });
  const field = (end: "from" | "to", value: number) => (
    <label class="field"><span>{end === "from" ? "From" : "To"}</span><input type="datetime-local" step="1" value={localText(value)} onChange={(event) => set(end, event.currentTarget.value)} /></label>
  );
  return (
    <>
      {field("from", from)}
      {field("to", to)}
      <button type="button" onClick={wider}>Wider</button>
      <button type="button" onClick={() => shift(-1)}>Earlier</button>
      <button type="button" onClick={() => shift(1)}>Later</button>
    </>
  );
}

/** `history` names the server with data older than the retained windows; empty if there is none. */
export function RangePicker({ span, history }: { span: Span | null; history: string }) {
  const { query } = route.value;
  const last = query.get("last");
  const range = rangeOf(query);
  const value = last ?? (range ? "chosen" : "");
  const length = span ? span.last - span.first : 0;
  const fitting = history ? [...LAST, ...PAST] : LAST.filter(([id]) => id === last || lengthOf(id)! < length);
  const set = (id: string) => {
    if (id === "chosen") return span && chooseRange({ from: span.first, to: span.last });
    choose({ last: id || null, from: null, to: null });
  };
  return (
    <fieldset class="range">
      <legend class="hidden">Time</legend>
      <Select label="Time" value={value} options={[["", "newest"], ...fitting, ...(last && !fitting.some(([id]) => id === last) ? [[last, `last ${last}`] as const] : []), ["chosen", "from … to …"]]} onChange={set} />
      {value === "chosen" && range && span && <Ends range={range} span={span} isBounded={!history} />}
      {range && <button type="button" onClick={() => chooseRange(null)}>Show newest</button>}
      {span && <p class="muted retained">Retained: {moment(span.first)} to {new Date(span.first).toDateString() === new Date(span.last).toDateString() ? clock(span.last) : moment(span.last)}{history && `; before: from ${history}`}</p>}
    </fieldset>
  );
}
