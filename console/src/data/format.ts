// Numbers, sizes and times as people read them.
import type { Value } from "../api/types.ts";

const SI = ["", "k", "M", "G", "T", "P", "E"];
const IEC = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** A number with at most three or four significant digits. */
function short(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  // The number has two digits and no exponent.
  if (size < 1e-6) return "< 0.000001";
  if (size < 0.01) return value.toFixed(1 - Math.floor(Math.log10(size))).replace(/0+$/, "");
  return value.toFixed(size < 1 ? 2 : size < 10 ? 2 : size < 100 ? 1 : 0).replace(/\.0+$|(\.[0-9]*[1-9])0+$/, "$1");
}

function scaled(value: number, step: number, units: string[], gap: string): string {
  let index = 0;
  while (Math.abs(value) >= step * 0.9995 && index < units.length - 1) {
    value /= step;
    index += 1;
  }
  return index === 0 && Number.isInteger(value) ? `${value}${gap}${units[0]}`.trim() : `${short(value)}${gap}${units[index]}`.trim();
}

export const count = (value: number) => scaled(value, 1000, SI, "\u202f");
/** Rates of network links are in bits, by powers of 1000. */
export const bits = (value: number) => scaled(value, 1000, ["bit", "kbit", "Mbit", "Gbit", "Tbit", "Pbit", "Ebit"], "\u202f");
export const bytes = (value: number) => scaled(value, 1024, IEC, "\u202f");

export function duration(ns: number): string {
  if (ns === 0) return "0";
  const size = Math.abs(ns);
  if (size < 1e3) return `${short(ns)}\u202fns`;
  if (size < 1e6) return `${short(ns / 1e3)}\u202fµs`;
  if (size < 1e9) return `${short(ns / 1e6)}\u202fms`;
  if (size < 120e9) return `${short(ns / 1e9)}\u202fs`;
  if (size < 7200e9) return `${short(ns / 60e9)}\u202fmin`;
  if (size < 172800e9) return `${short(ns / 3600e9)}\u202fh`;
  return `${short(ns / 86400e9)}\u202fd`;
}

/** An integer with spaces between groups of three digits. */
export function exact(value: number | bigint): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 3 }).replaceAll(",", "\u202f");
}

const two = (value: number) => String(value).padStart(2, "0");

export function clock(time: string | number | Date): string {
  const date = new Date(time);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Date and time by the browser's clock and zone. */
export function moment(time: string | number | Date): string {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return "";
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(date)}`;
}

/** The zone of all times that the console shows: that of the browser. */
export function zone(): string {
  const minutes = -new Date().getTimezoneOffset();
  const offset = `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return minutes === 0 && /^(UTC|Etc\/UTC)?$/.test(name ?? "") ? "UTC" : [name, name ? `(${offset})` : offset].filter(Boolean).join(" ");
}

/** The time since then, in words. */
export function ago(time: string | number, now = Date.now()): string {
  const seconds = Math.max(0, (now - new Date(time).getTime()) / 1000);
  return Number.isFinite(seconds) ? `${duration(Math.round(seconds) * 1e9)} ago` : "";
}

/** The end of numbers that are not current: "until 14:37:03, 2 min ago". A day or more ago it has the date. */
export const until = (end: number, now: number) => `until ${now - end < 86_400_000 ? clock(end) : moment(end)}, ${ago(end, now)}`;

export const percent = (part: number) => (part === 0 ? "0 %" : part < 0.0001 ? "< 0.01 %" : `${(part * 100).toFixed(part < 0.01 ? 2 : 1)} %`);

export type Unit = "count" | "bytes" | "ns";

/** The unit of a number, by the name of its field or metric, and the factor that converts the number to this unit. */
export function unitOf(name: string): { unit: Unit; factor: number } {
  const word = name.toLowerCase();
  if (/(^|[_.])(bytes?|octets?|len|length)($|_total$|[_.])/.test(word)) return { unit: "bytes", factor: 1 };
  if (/(_|^)(ns|nanoseconds)($|[_.])/.test(word)) return { unit: "ns", factor: 1 };
  if (/(_|^)(us|microseconds)($|[_.])/.test(word)) return { unit: "ns", factor: 1e3 };
  if (/(_|^)(ms|milliseconds)($|[_.])/.test(word)) return { unit: "ns", factor: 1e6 };
  if (/_seconds($|[_.])/.test(word)) return { unit: "ns", factor: 1e9 };
  return { unit: "count", factor: 1 };
}

/** A number in the unit of its name, or as a rate. Byte rates are in bits, as for links, unless `inBits` is false. */
export function inUnit(value: number, name: string, perSecond = false, inBits = true): string {
  const { unit, factor } = unitOf(name);
  if (unit === "bytes" && perSecond && inBits) return `${bits(value * 8)}/s`;
  const text = unit === "bytes" ? bytes(value) : unit === "ns" ? duration(value * factor) : count(value);
  return perSecond ? `${text}/s` : text;
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

/** An address as people write it: IPv4 addresses without the prefix `::ffff:`. */
export const address = (value: string) => value.replace(/(^|\s)::ffff:(\d+\.\d+\.\d+\.\d+)/g, "$1$2");

/** A text as a table shows it: times by the browser's clock. */
export function text(value: Value): string {
  if (typeof value === "string") value = address(value);
  if (typeof value === "string") return TIME.test(value) ? `${moment(value)}.${(value.split(".")[1] ?? "").slice(0, 6)}` : value;
  if (value === null) return "";
  if (typeof value === "object") return JSON.stringify(value, (_, part) => (typeof part === "bigint" ? String(part) : part));
  return String(value);
}

export const plural = (number: number, word: string) => `${exact(number)} ${word}${number === 1 ? "" : "s"}`;

export const ordinal = (number: number) => {
  const ending = number % 100 > 10 && number % 100 < 14 ? "th" : (["th", "st", "nd", "rd"][number % 10] ?? "th");
  return `${exact(number)}${ending}`;
};
