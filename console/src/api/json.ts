// JSON whose integers stay exact: counters have 64 bits, and a JavaScript number has 53.
import { parse, stringify } from "lossless-json";

/** A run of digits that may not fit into a number. */
const LONG = /[0-9]{16}/;

export function parseNumber(text: string): number | bigint {
  const number = Number(text);
  return /^-?[0-9]+$/.test(text) && !Number.isSafeInteger(number) ? BigInt(text) : number;
}

export function parseJson(text: string): unknown {
  return LONG.test(text) ? parse(text, null, parseNumber) : JSON.parse(text);
}

export function writeJson(value: unknown, indent?: number): string {
  return stringify(value, null, indent) ?? "null";
}
