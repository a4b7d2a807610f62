// The differences of two configurations (each source with its files, and the rest), or of two rules.
import { structuredPatch } from "diff";
import { writeJson } from "../api/json.ts";
import type { Config, Rule } from "../api/types.ts";
import { DIRECTIONS } from "../api/types.ts";

export interface Line {
  kind: "same" | "added" | "removed";
  text: string;
  old?: number;
  now?: number;
}

export interface Difference {
  title: string;
  hunks: Line[][];
}

function withoutSources(config: Config): Config {
  const copy = structuredClone(config);
  for (const direction of DIRECTIONS) {
    delete copy[direction]?.source;
    delete copy[direction]?.files;
  }
  return copy;
}

function linesOf(before: string, after: string): Line[][] {
  const patch = structuredPatch("", "", before, after, "", "", { context: 3 });
  return patch!.hunks.map((hunk) => {
    let [old, now] = [hunk.oldStart, hunk.newStart];
    return hunk.lines.filter((line) => !line.startsWith("\\")).map((line): Line => {
      const text = line.slice(1);
      if (line.startsWith("+")) return { kind: "added", text, now: now++ };
      if (line.startsWith("-")) return { kind: "removed", text, old: old++ };
      return { kind: "same", text, old: old++, now: now++ };
    });
  });
}

/** The differences between two configurations. Equal parts are left out. */
export function differences(before: Config, after: Config): Difference[] {
  const json = (config: Config) => `${JSON.stringify(withoutSources(config), null, 2)}\n`;
  const parts: [string, string, string][] = [["configuration", json(before), json(after)]];
  for (const direction of DIRECTIONS) {
    parts.push([`${direction} source`, before[direction]?.source ?? "", after[direction]?.source ?? ""]);
    const [old, now] = [before[direction]?.files ?? {}, after[direction]?.files ?? {}];
    for (const name of Object.keys({ ...old, ...now })) parts.push([`${direction} ${name}`, old[name] ?? "", now[name] ?? ""]);
  }
  return differing(parts);
}

/** The differences between two documents of a rule. */
export function ruleDifferences(before: Rule, after: Rule): Difference[] {
  const [a, b] = [before, after].map((rule) => `${writeJson(rule, 2)}\n`) as [string, string];
  return differing([["rule", a, b]]);
}

const differing = (parts: [string, string, string][]): Difference[] =>
  parts.filter(([, a, b]) => a !== b).map(([title, a, b]) => ({ title, hunks: linesOf(a, b) }));
