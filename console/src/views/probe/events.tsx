// Events that programs write.
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, type Problem, probePath } from "../../api/client.ts";
import { objects } from "../../api/stream.ts";
import type { Probe, Value } from "../../api/types.ts";
import { clock, exact, inUnit, plural, text } from "../../data/format.ts";
import { filterOf } from "../../data/filter.ts";
import { frameText } from "../../data/packet.ts";
import { type Column, columnsOf, isNumber, type Row, rowOf } from "../../data/rows.ts";
import { Check, Empty, ProblemBox, Select } from "../../parts/basics.tsx";
import { parameter, toggle } from "../../parts/route.ts";

/** The most events that are kept. */
const KEPT = 1000;
const SHOWN = 200;
/** The shortest time between two updates of the page, in milliseconds, however fast events come. */
const PACE = 200;

interface Event {
  number: number;
  time?: string;
  metric: string;
  direction: string;
  cpu?: number;
  event?: Value;
  lost?: number;
}

/** A value of an event as text: the bytes of a packet as its headers, sizes with their unit. */
function cell(row: Row, column: Column, isRaw: boolean) {
  const value = row[column.id];
  if (value === undefined) return "";
  const frame = isRaw ? null : frameText(value);
  if (frame !== null) return <span title={String(value)}>{frame}</span>;
  return isNumber(value) && !isRaw ? inUnit(Number(value), column.title) : text(value);
}

export function Events({ probe }: { probe: Probe }) {
  const names = [...new Set(probe.events?.map((event) => event.metric) ?? [])];
  const [metric, setMetric] = parameter("events");
  const [paused, setPaused] = useState(false);
  const [filter, setFilter] = parameter("filter");
  const [raw, setRaw] = toggle("hex", false);
  const [events, setEvents] = useState<Event[]>([]);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [counts, setCounts] = useState({ received: 0, lost: 0 });
  const stopped = useRef(false);
  stopped.current = paused;

  useEffect(() => {
    const control = new AbortController();
    let waiting: Event[] = [];
    let [received, lost] = [0, 0];
    setEvents([]);
    const timer = setInterval(() => {
      if (waiting.length === 0) return;
      const more = waiting.reverse();
      waiting = [];
      setCounts({ received, lost });
      if (!stopped.current) setEvents((events) => [...more, ...events].slice(0, KEPT));
    }, PACE);
    const follow = async () => {
      while (!control.signal.aborted) {
        try {
          const query = metric ? `?metric=${encodeURIComponent(metric)}` : "";
          setProblem(null);
          for await (const event of objects(`${probePath(probe.name)}/events${query}`, control.signal)) {
            const one = event as Event;
            one.number = received + lost;
            if (one.lost) lost += one.lost;
            else received += 1;
            waiting.push(one);
            if (waiting.length > KEPT) waiting.shift();
          }
        } catch (error) {
          if (control.signal.aborted) return;
          const found = asProblem(error);
          if (found.status === 404) return setProblem(found);
          setProblem(found);
        }
        // The stream ends when the probe is replaced. A new stream follows the new deployment.
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    };
    void follow();
    return () => {
      clearInterval(timer);
      control.abort();
    };
  }, [probe.name, metric]);

  const rows = events.map((event) => ({ event, row: (event.event === undefined ? {} : rowOf({ value: event.event })) as Row }));
  const columns = columnsOf(rows.map(({ row }) => row), "event");
  const frames = columns.filter((column) => rows.some(({ row }) => frameText(row[column.id]) !== null));
  const matches = filterOf(filter, columns);
  // The filter matches the shown text and also the raw bytes.
  const isFound = (row: Row) => matches(row) || frames.some((column) => matches({ ...row, [column.id]: frameText(row[column.id]) ?? "" }));
  const found = rows.filter(({ event, row }) => event.lost || isFound(row));
  return (
    <>
      <div class="controls">
        {names.length > 1 && <Select label="Metric" value={metric} options={[["", "all"], ...names.map((name) => [name, name] as const)]} onChange={setMetric} />}
        <label class="field grow"><span>Filter</span><input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value, true)} /></label>
        {frames.length > 0 && <Check label="bytes in hex" value={raw} onChange={setRaw} />}
        <Check label="pause" value={paused} onChange={setPaused} />
        <button type="button" onClick={() => setEvents([])}>Clear</button>
        <p class="muted summary">{plural(counts.received, "event")} since this view was opened{counts.lost > 0 && <strong class="warn-text">, {exact(counts.lost)} lost</strong>}</p>
      </div>
      {problem && <ProblemBox problem={problem} />}
      {found.length === 0 ? <Empty>{events.length > 0 ? "No event matches the filter." : "Waiting for events. They are shown as programs write them."}</Empty> : (
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Events">
          <table class="stacked">
            <thead><tr><th scope="col">Read at</th><th scope="col">Metric</th>{columns.map((column) => <th scope="col" class={column.isNumber ? "number" : ""}>{column.title}</th>)}</tr></thead>
            <tbody>
              {found.slice(0, SHOWN).map(({ event, row }) => (
                <tr key={event.number}>
                  <td data-label="Read at">{event.time ? `${clock(event.time)}.${(event.time.split(".")[1] ?? "").slice(0, 3)}` : ""}</td>
                  <td data-label="Metric">{event.direction} {event.metric}</td>
                  {event.lost ? <td class="warn-text" colSpan={Math.max(1, columns.length)}>{plural(event.lost, "event")} lost here</td>
                    : columns.map((column) => <td class={column.isNumber ? "number" : "key"} data-label={column.title}><span class="message">{cell(row, column, raw)}</span></td>)}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
