// Keys of entries, as texts for the labels of lines and rows.
import { address } from "./format.ts";
import { hasNames, isPort, numberText } from "./names.ts";
import type { Row } from "./rows.ts";

/** True if a part of a key is a number that only its name explains. Ports stand beside their addresses. */
const isBare = (id: string, value: unknown) => typeof value !== "string" && value !== undefined && value !== null && !isPort(id) && !id.endsWith("]");

/**
 * The parts of a key in one text, which is also the identity of its line. Two or more bare numbers have their names, such
 * as `vlan=7`: without names they look alike. `names` adds the names of services and protocols.
 */
export function keyLabel(row: Row, ids: string[], names = false): string {
  let bare = 0;
  for (const id of ids) if (isBare(id, row[id])) bare += 1;
  return ids.map((id) => {
    const value = row[id];
    const text = names && hasNames(id) ? numberText(id, value) : address(String(value ?? ""));
    return bare > 1 && isBare(id, value) ? `${id.replace(/^key\.?/, "") || id}=${text}` : text;
  }).join(" ");
}

/** A text without the words in its middle that find no room. */
function withoutMiddle(text: string, most: number): string {
  const words = text.split(" ");
  const [begin, end] = [words.splice(0, Math.ceil(words.length / 2)), words];
  const size = (some: string[]) => (some.length > 1 ? some.join(" ").length : 0);
  while ([...begin, "…", ...end].join(" ").length > most && begin.length + end.length > 2) {
    if (size(begin) >= size(end)) begin.pop();
    else end.shift();
  }
  return [...begin, "…", ...end].join(" ");
}

/** Shortens long labels by words in the middle. Labels that would then look the same stay whole. */
export function shortened(labels: string[], most: number): string[] {
  const short = labels.map((label) => (label.length > most ? withoutMiddle(label, most) : label));
  return short.map((text, place) => (short.indexOf(text) === short.lastIndexOf(text) && text.length < labels[place]!.length ? text : labels[place]!));
}
