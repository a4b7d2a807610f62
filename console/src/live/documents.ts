// The windows of one probe: those that are retained when a view is opened, and each one that is closed while it is open.
import { signal } from "@preact/signals";
import { ask, asProblem, type Problem, probePath } from "../api/client.ts";
import type { Document, WindowEntry } from "../api/types.ts";
import { onWindow, probes } from "./changes.ts";

/** At most so many windows are kept. */
const WINDOWS = 360;
/** And so many entries of all of them: a million numbers take some 100 MiB. */
const ENTRIES = 150_000;
/** The size of the files of windows that are fetched when the view is opened. */
const FETCH_BYTES = 16 << 20;
/** Windows are fetched so many at a time. */
const LANES = 3;

const entriesOf = (document: Document) =>
  [...Object.values(document.ingress), ...Object.values(document.egress)].reduce((sum, metric) => sum + metric.entries.length + 1, 0);

/** Whether reading a probe closes windows: one of its metrics is reset. */
export function hasWindows(config: { ingress?: any; egress?: any }): boolean {
  return [config.ingress, config.egress].some((direction) =>
    direction?.metrics?.some((metric: any) => metric.snapshot || metric.init),
  );
}

class Loader {
  /** Oldest first. */
  windows = signal<Document[]>([]);
  /** What was read last without waiting for a window. */
  live = signal<{ document: Document; time: Date } | null>(null);
  problem = signal<Problem | null>(null);
  loading = signal(true);
  private control = new AbortController();
  private known = new Set<number>();
  private waiting: number[] = [];
  private busy = 0;
  private stop: () => void;

  constructor(private name: string) {
    this.stop = onWindow((probe, window) => {
      if (probe === name) this.want([window.seq]);
    });
  }

  /** Fetches the windows that are retained and not known yet: to begin with, and after a connection was lost. */
  async begin() {
    try {
      const list = await ask<{ windows: WindowEntry[] }>(`${probePath(this.name)}/windows`, { signal: this.control.signal });
      let room = FETCH_BYTES;
      const newest = list.windows.reverse().filter((window, index) => {
        room -= window.bytes;
        return index === 0 || (index < WINDOWS && room >= 0);
      });
      // The oldest goes when the next window is closed, which may be before it is asked for.
      if (newest.length > 2 && newest.length === list.windows.length) newest.splice(-2);
      this.want(newest.map((window) => window.seq));
    } catch (error) {
      this.failed(error);
    }
    if (this.busy === 0) this.loading.value = false;
  }

  private failed(error: unknown) {
    const problem = asProblem(error);
    // A lost connection is told of for all views, and made up for once it is there again.
    if (!this.control.signal.aborted && problem.status !== 0) this.problem.value = problem;
  }

  private want(seqs: number[]) {
    for (const seq of seqs) {
      if (this.known.has(seq)) continue;
      this.known.add(seq);
      this.waiting.push(seq);
    }
    while (this.busy < LANES && this.waiting.length > 0) void this.fetch();
  }

  private async fetch() {
    this.busy += 1;
    const got: Document[] = [];
    while (this.waiting.length > 0 && !this.control.signal.aborted) {
      const seq = this.waiting.shift()!;
      if (seq < (probes.peek().get(this.name)?.windows.oldest ?? 0)) continue;
      try {
        got.push(await ask<Document>(`${probePath(this.name)}/windows/${seq}`, { signal: this.control.signal }));
        this.problem.value = null;
      } catch (error) {
        // A window may be acknowledged or lost between the list and this request.
        const { status } = asProblem(error);
        if (status === 0) this.known.delete(seq);
        if (status !== 404) this.failed(error);
      }
      // The first ones are shown at once.
      const enough = this.windows.peek().length === 0 ? 2 : 16;
      if (got.length > 0 && (got.length >= enough || this.waiting.length === 0)) this.keep(got.splice(0));
    }
    this.busy -= 1;
    if (this.busy === 0) this.loading.value = false;
  }

  private keep(more: Document[]) {
    const bySeq = new Map([...this.windows.value, ...more].map((document) => [document.window!.seq, document]));
    const all = [...bySeq.values()].sort((a, b) => a.window!.seq - b.window!.seq);
    let entries = 0;
    let first = all.length - 1;
    for (let index = all.length - 1; index >= 0 && all.length - index <= WINDOWS; index -= 1) {
      entries += entriesOf(all[index]!);
      if (entries > ENTRIES && index < all.length - 2) break;
      first = index;
    }
    this.windows.value = all.slice(first);
  }

  async read() {
    try {
      const document = await ask<Document>(`${probePath(this.name)}/metrics`, { signal: this.control.signal });
      if (document.window && !this.known.has(document.window.seq)) {
        this.known.add(document.window.seq);
        this.keep([document]);
      }
      this.live.value = { document, time: new Date() };
      this.problem.value = null;
    } catch (error) {
      this.failed(error);
    }
  }

  async close() {
    try {
      const document = await ask<Document>(`${probePath(this.name)}/windows`, { method: "POST", signal: this.control.signal });
      this.known.add(document.window!.seq);
      this.keep([document]);
      this.problem.value = null;
    } catch (error) {
      this.failed(error);
    }
  }

  end() {
    this.stop();
    this.control.abort();
  }
}

export type { Loader };
export const loadDocuments = (name: string) => new Loader(name);
