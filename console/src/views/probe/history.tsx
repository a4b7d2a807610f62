// The history of a probe: author, time, origin and reason of each change, and the cost before and after it.
import { ask, probePath } from "../../api/client.ts";
import type { Cost, HistoryEntry, Probe } from "../../api/types.ts";
import { duration, moment } from "../../data/format.ts";
import { ProblemBox, Section, useAsk, Wide } from "../../parts/basics.tsx";

/** The cost of a packet in all directions together; null if no trial has measured it. */
function nanoseconds(cost: Cost | undefined): number | null {
  const runs = Object.values(cost?.directions ?? {}).flatMap((direction) => direction.ns_per_packet ?? []);
  return runs.length > 0 ? runs.reduce((sum, ns) => sum + ns, 0) : null;
}

function costs(entry: HistoryEntry): string {
  const [before, after] = [nanoseconds(entry.cost_before), nanoseconds(entry.cost_after)];
  const shown = (ns: number | null) => (ns === null ? "" : duration(ns));
  return before === null ? shown(after) : `${shown(before)} → ${shown(after)}`;
}

function origin(from: HistoryEntry["from"]): string {
  if (!from) return "";
  return from.address ?? from.file ?? (from.pid ? `process ${from.pid}` : "");
}

export function History({ probe }: { probe: Probe }) {
  const [loading] = useAsk((signal) => ask<{ history: HistoryEntry[] }>(`${probePath(probe.name)}/history`, { signal }), [probe.name, probe.revision]);
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  return (
    <Section title="History">
      <Wide label="History">
        <thead><tr><th scope="col">Time</th><th scope="col">Change</th><th scope="col">Revision</th><th scope="col">By</th><th scope="col">From</th><th scope="col">Cost of a packet</th><th scope="col">Reason</th></tr></thead>
        <tbody>
          {[...loading.value.history].reverse().map((entry) => (
            <tr>
              <td>{moment(entry.time)}</td><td>{entry.change}</td><td>{entry.revision}</td><td>{entry.who ?? ""}</td>
              <td>{origin(entry.from)}</td><td>{costs(entry)}</td><td class="message">{entry.message ?? <span class="muted">none given</span>}</td>
            </tr>
          ))}
        </tbody>
      </Wide>
    </Section>
  );
}
