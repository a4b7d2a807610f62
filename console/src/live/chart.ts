// The chart of a metric that the daemon aggregates itself: for windows that are too large to be fetched one by one.
import { useEffect, useState } from "preact/hooks";
import { ask, asProblem, type Problem, probePath } from "../api/client.ts";
import type { Probe } from "../api/types.ts";
import type { Series } from "../data/aggregated.ts";
import type { Range } from "../data/range.ts";
import type { Place } from "../data/rows.ts";
import { onWindow } from "./changes.ts";

/** A chart fetches no windows if they have more bytes than this each. */
const LARGE = 32 << 10;
/** The shortest time between two requests for a chart, in milliseconds. */
const PACE = 2_000;

/** The shortest time between two requests to a server of metrics, whose points span minutes. */
const PAST_PACE = 60_000;

/** True if the daemon makes the chart of the probe's windows. */
export const isLarge = (probe: Probe) => probe.windows.bytes > LARGE * probe.windows.retained;

/** The parameters of the request to the daemon. */
export interface Wanted {
  place: Place;
  /** The path of the number in the value; empty if the value is the number. */
  field: string;
  top: number;
  /** The only key that is wanted, as JSON; without one, the largest keys. */
  key?: string;
  range: Range | null;
  /** True if the numbers come from a server, not from windows. */
  past: boolean;
}

const path = (name: string, { place, field, top, key, range, past }: Wanted) => {
  const query = new URLSearchParams({ metric: place.name, direction: place.direction, top: String(top) });
  if (field) query.set("field", field);
  if (key && !past) query.set("key", key);
  // A range such as the last minutes moves with the time.
  if (range) query.set("from", new Date(range.length ? Date.now() - range.length : range.from).toISOString());
  if (range && !range.length && range.to < Infinity) query.set("to", new Date(range.to).toISOString());
  return `${probePath(name)}/series${past ? "/history" : ""}?${query}`;
};

/** Requests a chart as long as it is shown, again after each window. `null` requests nothing. */
export function useChart(probe: Probe, wanted: Wanted | null): { series: Series | null; problem: Problem | null } {
  const [state, setState] = useState<{ id: string; series: Series | null; problem: Problem | null }>({ id: "", series: null, problem: null });
  // A range such as the last minutes moves with the time, but its identity stays the same.
  const moments = wanted?.range && (wanted.range.length ?? [wanted.range.from, wanted.range.to]);
  const id = wanted ? JSON.stringify([probe.name, probe.instance, wanted.place, wanted.field, wanted.top, wanted.key, wanted.past, moments]) : "";
  useEffect(() => {
    if (!wanted) return;
    const control = new AbortController();
    let [busy, again] = [false, false];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const request = async () => {
      busy = true;
      try {
        const series = await ask<Series>(path(probe.name, wanted), { signal: control.signal });
        setState({ id, series, problem: null });
      } catch (error) {
        // A range without a window has nothing to draw. A server's 404 names the missing data.
        const problem = asProblem(error);
        const isNothing = problem.status === 404 && !wanted.past;
        if (!control.signal.aborted) setState((now) => ({ id, series: now.id === id && problem.status !== 404 ? now.series : null, problem: isNothing ? null : problem }));
      }
      timer = setTimeout(() => {
        busy = false;
        if (again) void request();
        again = false;
      }, wanted.past ? PAST_PACE : PACE);
    };
    void request();
    const stop = onWindow((name) => {
      if (name !== probe.name || document.hidden || (wanted.past && !wanted.range?.length)) return;
      if (busy) again = true;
      else void request();
    });
    return () => {
      stop();
      control.abort();
      clearTimeout(timer);
    };
  }, [id]);
  return state.id === id ? state : { series: null, problem: null };
}
