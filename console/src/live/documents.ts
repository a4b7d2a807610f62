// The windows of one probe: those of a range of time, or the newest ones and each window that closes while the view is
// open.
import { signal } from "@preact/signals";
import { ask, asProblem, type Problem, probePath } from "../api/client.ts";
import type { Document, WindowEntry } from "../api/types.ts";
import { pick, type Range } from "../data/range.ts";
import { onWindow, probes } from "./changes.ts";

/** The most windows that are kept. */
const WINDOWS = 360;
/** The most entries that all kept windows have together: a million numbers take about 100 MiB. */
const ENTRIES = 150_000;
/** The most bytes of windows that are fetched when the view is opened. */
const FETCH_BYTES = 16 << 20;
/** The number of entries that is enough to offer fields and keys. */
const FEW = 50;
/** The number of windows that are fetched in parallel. */
const LANES = 3;

const entriesOf = (document: Document) =>
  [...Object.values(document.ingress), ...Object.values(document.egress)].reduce((sum, metric) => sum + metric.entries.length + 1, 0);

/** True if reading the probe closes a window, because one of its metrics is reset. */
export function hasWindows(config: { ingress?: any; egress?: any }): boolean {
  return [config.ingress, config.egress].some((direction) =>
    direction?.metrics?.some((metric: any) => metric.snapshot || metric.init),
  );
}

/** The newest windows of a list whose total size is within the limit, oldest first. */
function newestOf(windows: WindowEntry[]): WindowEntry[] {
  let room = FETCH_BYTES;
  const newest = [...windows].reverse().filter((window, index) => {
    room -= window.bytes;
    return index === 0 || (index < WINDOWS && room >= 0);
  });
  // The daemon may remove the oldest window when it closes the next one, before this client requests it.
  if (newest.length > 2 && newest.length === windows.length) newest.splice(-2);
  return newest.reverse();
}

class Loader {
  /** Oldest first. */
  windows = signal<Document[]>([]);
  /** The last live reading, which waits for no window. */
  live = signal<{ document: Document; time: Date } | null>(null);
  problem = signal<Problem | null>(null);
  loading = signal(true);
  /** The moments of the oldest and the newest window that is retained, in milliseconds. */
  span = signal<{ first: number; last: number } | null>(null);
  /** The number of windows in the range, and the step between those that are fetched. */
  drawn = signal<{ inside: number; stride: number }>({ inside: 0, stride: 1 });
  private control = new AbortController();
  private begun = false;
  private known = new Set<number>();
  private had: Map<number, Document>;
  private waiting: number[] = [];
  private busy = 0;
  private stop: () => void;

  /** `had` has windows that were fetched for another range. With `few`, the loader fetches only the newest window,
   * with few of its entries. */
  constructor(private name: string, private range: Range | null, had: Document[], private few: boolean) {
    const fits = (document: Document) => !range || (Date.parse(document.window!.end) > range.from && Date.parse(document.window!.start) < range.to);
    this.had = new Map(had.map((document) => [document.window!.seq, document]));
    this.windows.value = range ? had.filter(fits) : [];
    this.stop = onWindow((probe, window) => {
      if (probe !== name) return;
      const span = this.span.peek();
      if (span) this.span.value = { ...span, last: Date.parse(window.end) };
      if (!few && (!range || Date.parse(window.start) < range.to)) this.want([window.seq]);
    });
  }

  /** Fetches the retained windows that are not here yet: at the beginning, and after a lost connection. */
  async begin() {
    try {
      const list = await ask<{ windows: WindowEntry[] }>(`${probePath(this.name)}/windows`, { signal: this.control.signal });
      const all = list.windows;
      if (all.length > 0) this.span.value = { first: Date.parse(all[0]!.start), last: Date.parse(all[all.length - 1]!.end) };
      const { windows, ...drawn } = this.few ? { windows: all.slice(-1), inside: all.length, stride: 1 } : this.range ? pick(all, this.range, WINDOWS, FETCH_BYTES) : { windows: newestOf(all), inside: all.length, stride: 1 };
      this.drawn.value = drawn;
      const wanted = new Set(windows.map((window) => window.seq));
      // Windows that were fetched before may be closer together than this range needs.
      if (this.range && !this.begun) this.windows.value = this.windows.peek().filter((document) => wanted.has(document.window!.seq));
      this.begun = true;
      this.want([...wanted].reverse());
    } catch (error) {
      this.failed(error);
    }
    if (this.busy === 0) this.loading.value = false;
  }

  private failed(error: unknown) {
    const problem = asProblem(error);
    // The page reports a lost connection for all views. Missed windows are fetched after it is back.
    if (!this.control.signal.aborted && problem.status !== 0) this.problem.value = problem;
  }

  private want(seqs: number[]) {
    const there: Document[] = [];
    for (const seq of seqs) {
      if (this.known.has(seq)) continue;
      this.known.add(seq);
      const had = this.had.get(seq);
      if (had) there.push(had);
      else this.waiting.push(seq);
    }
    if (there.length > 0) this.keep(there);
    while (this.busy < LANES && this.waiting.length > 0) void this.fetch();
  }

  private async fetch() {
    this.busy += 1;
    const got: Document[] = [];
    while (this.waiting.length > 0 && !this.control.signal.aborted) {
      const seq = this.waiting.shift()!;
      if (seq < (probes.peek().get(this.name)?.windows.oldest ?? 0)) continue;
      try {
        got.push(await ask<Document>(`${probePath(this.name)}/windows/${seq}${this.few ? `?top=${FEW}` : ""}`, { signal: this.control.signal }));
        this.problem.value = null;
      } catch (error) {
        // A window may be acknowledged or lost between the list and this request.
        const { status } = asProblem(error);
        if (status === 0) this.known.delete(seq);
        if (status !== 404) this.failed(error);
      }
      // The first windows are shown immediately.
      const enough = this.windows.peek().length === 0 ? 2 : 16;
      if (got.length > 0 && (got.length >= enough || this.waiting.length === 0)) this.keep(got.splice(0));
    }
    this.busy -= 1;
    if (this.busy === 0) this.loading.value = false;
  }

  private keep(more: Document[]) {
    const bySeq = new Map([...this.windows.value, ...more].map((document) => [document.window!.seq, document]));
    const oldest = this.range?.length ? Date.now() - this.range.length : 0;
    const all = [...bySeq.values()].filter((document) => Date.parse(document.window!.end) > oldest).sort((a, b) => a.window!.seq - b.window!.seq);
    let entries = 0;
    let first = all.length - 1;
    for (let index = all.length - 1; index >= 0 && all.length - index <= WINDOWS; index -= 1) {
      entries += entriesOf(all[index]!);
      if (entries > ENTRIES && index < all.length - 2) break;
      first = index;
    }
    this.windows.value = all.slice(Math.max(0, first));
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
export const loadDocuments = (name: string, range: Range | null, had: Document[], few: boolean) => new Loader(name, range, had, few);
