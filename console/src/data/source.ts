// The maps that a source's text shows. They only help to complete metrics; the daemon's analysis decides.

export interface SourceMap {
  name: string;
  /** The type, as in BPF_MAP_TYPE_, in lower case. */
  type: string;
  /** The C type of events. */
  event?: string;
  /** True if the entries are slots of a histogram. */
  histogram?: boolean;
  /** True if the slots are numbered as in BCC. */
  bcc?: boolean;
}

const WITHOUT_COMMENTS = /\/\*[\s\S]*?\*\/|\/\/[^\n]*/g;
const LIBBPF = /struct\s*\w*\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}\s*(\w+)\s*(?:__attribute__\s*\(\(.*?\)\)\s*)*SEC\s*\(\s*"\.maps"\s*\)/g;
const HEADER = /^[ \t]*TP_((?:LRU_|PERCPU_)*(?:HASH|ARRAY)|LPM|QUEUE|RINGBUF|HISTOGRAM|LINEAR|RESERVOIR)\s*\(\s*(\w+)\s*(?:,\s*([^,)]+))?/gm;
const BCC = /^[ \t]*BPF_(HASH|LRU_HASH|PERCPU_HASH|ARRAY|PERCPU_ARRAY|HISTOGRAM|LPM_TRIE|PERF_OUTPUT|RINGBUF_OUTPUT|QUEUE|STACK)\s*\(\s*(\w+)/gm;
const BCC_TABLE = /^[ \t]*BPF_TABLE(?:_SHARED)?\s*\(\s*"(\w+)"\s*,[^,]+,[^,]+,\s*(\w+)/gm;
const OF_MACRO: Record<string, string> = {
  lpm: "lpm_trie",
  histogram: "percpu_array",
  linear: "percpu_array",
  reservoir: "percpu_array",
  perf_output: "perf_event_array",
  ringbuf_output: "ringbuf",
};
/** Map types that no metric can read. */
const UNREADABLE = /^(prog_array|devmap.*|cpumap|xskmap|sockmap|sockhash|stack_trace|cgroup.*|bloom_filter|reuseport.*)$/;

/** The maps that a source defines, in its order. */
export function mapsOf(source: string): SourceMap[] {
  const text = source.replace(WITHOUT_COMMENTS, (comment) => comment.replace(/[^\n]/g, " "));
  const found: (SourceMap & { at: number })[] = [];
  for (const match of text.matchAll(LIBBPF)) {
    const type = /BPF_MAP_TYPE_(\w+)/.exec(match[1]!)?.[1]?.toLowerCase();
    const histogram = /decl_tag\s*\(\s*"histogram"|TP_AS\s*\(\s*histogram/.test(match[0]);
    if (type) found.push({ name: match[2]!, type, histogram, at: match.index });
  }
  for (const match of text.matchAll(HEADER)) {
    const macro = match[1]!.toLowerCase();
    const event = macro === "ringbuf" ? match[3]?.trim() : undefined;
    found.push({ name: match[2]!, type: OF_MACRO[macro] ?? macro, event, histogram: macro === "histogram", at: match.index });
  }
  for (const match of text.matchAll(BCC)) {
    const macro = match[1]!.toLowerCase();
    const type = macro === "histogram" ? "array" : (OF_MACRO[macro] ?? macro);
    found.push({ name: match[2]!, type, histogram: macro === "histogram", bcc: true, at: match.index });
  }
  for (const match of text.matchAll(BCC_TABLE)) found.push({ name: match[2]!, type: match[1]!, at: match.index });
  return found
    .filter((map) => !UNREADABLE.test(map.type))
    .sort((a, b) => a.at - b.at)
    .map(({ at: _, ...map }) => map);
}

export const isEvents = (type: string) => type === "ringbuf" || type === "perf_event_array";
const isPercpu = (type: string) => type.includes("percpu");

/** A metric for a map, with the usual settings for its type. */
export function metricFor(map: SourceMap, taken: string[]) {
  let name = map.name.replace(/[^a-zA-Z0-9_:]/g, "_");
  for (let number = 2; taken.includes(name); number += 1) name = `${map.name}_${number}`;
  if (isEvents(map.type)) return { name, map: map.name, ...(map.event && { type: map.event }) };
  if (map.type === "queue" || map.type === "stack") return { name, map: map.name };
  return { name, map: map.name, snapshot: true, init: true, ...(isPercpu(map.type) && { agg: "sum" }) };
}
