// The filter and the order of a table's rows.
import type { Value } from "../api/types.ts";
import { type Column, isNumber, type Row } from "./rows.ts";

const COMPARISON = /^([\w.[\]]+)(>=|<=|!=|=|>|<)(.+)$/;

/** Compares cells for sorting. Within addresses and other texts, runs of digits compare as numbers. */
export function compare(a: Value | undefined, b: Value | undefined): number {
  if (isNumber(a) && isNumber(b)) return a < b ? -1 : a > b ? 1 : 0;
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}

function holds(value: Value | undefined, operator: string, wanted: string): boolean {
  const number = Number(wanted);
  const order = isNumber(value) && !Number.isNaN(number) ? compare(value, number) : compare(value, wanted);
  switch (operator) {
    case ">": return order > 0;
    case "<": return order < 0;
    case ">=": return order >= 0;
    case "<=": return order <= 0;
    case "=": return order === 0;
    default: return order !== 0;
  }
}

/** Makes a filter from words. A row must match every word: a part of any cell, or `column>number`. */
export function filterOf(text: string, columns: Column[]): (row: Row) => boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => {
    const match = COMPARISON.exec(word);
    const column = match && columns.find((column) => column.title.toLowerCase() === match[1] || column.id.toLowerCase() === match[1]);
    if (match && column) return (row: Row) => holds(row[column.id], match[2]!, match[3]!);
    return (row: Row) => columns.some((column) => String(row[column.id] ?? "").toLowerCase().includes(word));
  });
  return (row) => tests.every((test) => test(row));
}
