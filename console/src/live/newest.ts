// The newest window of every probe, for the page that shows all probes. Only the view of a single probe fetches
// large windows.
import { signal } from "@preact/signals";
import { ask, probePath } from "../api/client.ts";
import type { Document, Probe, WindowEntry } from "../api/types.ts";
import { newestTwo } from "../data/newest.ts";
import { onWindow, probes } from "./changes.ts";

export interface Standing {
  /** The newest retained window, after the one before it if that is retained. The page shows the later one. */
  windows: Document[];
  /** The size of a window that was too large to be fetched, in bytes. */
  large?: number;
}

export const standings = signal<ReadonlyMap<string, Standing>>(new Map());

/** A window larger than this is not fetched. */
const LARGEST = 256 << 10;
/** The shortest time between two fetches of a probe's windows, in milliseconds. */
const PACE = 3000;
const LANES = 2;

const put = (name: string, standing: Standing) => (standings.value = new Map([...standings.value, [name, standing]]));

/** The expected size of a window, from the retained ones. */
const usual = ({ windows }: Probe) => (windows.retained > 0 ? windows.bytes / windows.retained : 0);

/** Fetches the newest windows of all probes as long as the page is open. Returns a function that ends this. */
export function followNewest(): () => void {
  const control = new AbortController();
  const scheduled = new Set<string>();
  const queue: string[] = [];
  const last = new Map<string, number>();
  const timers = new Set<ReturnType<typeof setTimeout>>();
  let busy = 0;

  const fetch = async (name: string) => {
    const probe = probes.peek().get(name);
    if (!probe || probe.windows.newest === null) return;
    const known = standings.peek().get(name)?.windows ?? [];
    if (usual(probe) > LARGEST) {
      put(name, { windows: [], large: usual(probe) });
      return;
    }
    const list = () => ask<{ windows: WindowEntry[] }>(`${probePath(name)}/windows`, { signal: control.signal });
    const had = (seq: number) => known.find((one) => one.window?.seq === seq && one.instance === probe.instance);
    const found = await newestTwo(probe.windows, async () => (await list()).windows, async (seq) =>
      had(seq) ?? ask<Document>(`${probePath(name)}/windows/${seq}`, { signal: control.signal }));
    if (found.length > 0) put(name, { windows: found });
  };
  const work = async () => {
    busy += 1;
    while (queue.length > 0 && !control.signal.aborted) {
      const name = queue.shift()!;
      scheduled.delete(name);
      last.set(name, performance.now());
      // A window may have been acknowledged meanwhile. The next window is fetched in any case.
      await fetch(name).catch(() => {});
    }
    busy -= 1;
  };
  const want = (name: string) => {
    if (document.hidden || scheduled.has(name)) return;
    scheduled.add(name);
    const timer = setTimeout(() => {
      timers.delete(timer);
      queue.push(name);
      if (busy < LANES) void work();
    }, Math.max(0, (last.get(name) ?? -PACE) + PACE - performance.now()));
    timers.add(timer);
  };
  const stop = onWindow(want);
  for (const name of probes.peek().keys()) want(name);
  return () => {
    stop();
    control.abort();
    for (const timer of timers) clearTimeout(timer);
  };
}
