// A range of time in the address: the last minutes, or from one moment to another.
export interface Range {
  /** In milliseconds. */
  from: number;
  /** Infinity if the range includes windows that will be closed later. */
  to: number;
  /** The length of a range that ends now and moves with the time. */
  length?: number;
}

export const LAST = [["5m", "last 5 minutes"], ["15m", "last 15 minutes"], ["1h", "last hour"], ["6h", "last 6 hours"], ["24h", "last 24 hours"], ["7d", "last 7 days"]] as const;
/** Further ranges, where a server has more than the retained windows. */
export const PAST = [["30d", "last 30 days"]] as const;
/** The share of a range that may be older than the oldest window, so that a moving range rarely switches sources. */
const SLACK = 0.05;
const UNITS: Record<string, number> = { m: 60e3, h: 3600e3, d: 86400e3 };

/** The length of `5m` in milliseconds. */
export function lengthOf(last: string): number | null {
  const match = /^(\d+)([mhd])$/.exec(last);
  return match ? Number(match[1]) * UNITS[match[2]!]! : null;
}

/** The range in an address; `null` for the newest windows. */
export function rangeOf(query: URLSearchParams, now = Date.now()): Range | null {
  const length = lengthOf(query.get("last") ?? "");
  if (length !== null) return { from: now - length, to: Infinity, length };
  const [from, to] = [query.get("from"), query.get("to")].map((text) => Date.parse(text ?? "")) as [number, number];
  if (Number.isNaN(from) && Number.isNaN(to)) return null;
  return { from: Number.isNaN(from) ? 0 : from, to: Number.isNaN(to) ? Infinity : to };
}

/** The identity of the range that an address asks for. It changes only if the user chooses another range. */
export const rangeId = (query: URLSearchParams) => ["last", "from", "to"].map((name) => query.get(name) ?? "").join(" ");

/** The parameters of a range for the address, rounded to seconds. */
export const rangeParameters = (range: Range | null) => ({
  last: null,
  from: range && range.from > 0 ? new Date(range.from).toISOString().replace(/\.\d+Z$/, "Z") : null,
  to: range && range.to < Infinity ? new Date(range.to).toISOString().replace(/\.\d+Z$/, "Z") : null,
});

/** True if a part of the range is older than the oldest window, which began at `first`. */
export const isPast = (range: Range, first: number, now = Date.now()) => first - range.from > SLACK * (Math.min(range.to, now) - range.from);

const two = (value: number) => String(value).padStart(2, "0");

/** A moment in the format of date inputs, in the browser's time zone. */
export function localText(time: number): string {
  const date = new Date(time);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The windows of a list that the chart of a range draws, oldest first. If there are too many, only every `stride`th. */
export function pick<W extends { start: string; end: string; bytes: number }>(windows: W[], range: Range, most: number, room: number) {
  const inside = windows.map((window, index) => ({ window, index })).filter(({ window }) => Date.parse(window.end) > range.from && Date.parse(window.start) < range.to);
  const bytes = inside.reduce((sum, { window }) => sum + window.bytes, 0);
  const stride = Math.max(1, Math.ceil(inside.length / most), Math.ceil(bytes / room));
  const last = inside.length - 1;
  const picked = inside.filter((_, index) => (last - index) % stride === 0);
  // Cumulative numbers also need the window before the first one, to subtract it.
  const before = picked.length > 0 ? windows[picked[0]!.index - stride] ?? windows[picked[0]!.index - 1] : undefined;
  return { windows: [...(before ? [before] : []), ...picked.map(({ window }) => window)], stride, inside: inside.length };
}
