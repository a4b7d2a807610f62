// The history of a probe: author, time, origin and reason of each change, and the cost before and after it.
import { ask, probePath } from "../../api/client.ts";
import type { Cost, HistoryEntry, Probe } from "../../api/types.ts";
import { duration, moment } from "../../data/format.ts";
import { may } from "../../live/changes.ts";
import { ProblemBox, Section, useAsk, Wide } from "../../parts/basics.tsx";

/** The cost of a packet in the slower direction, as everywhere; null if no trial has measured it. */
function nanoseconds(cost: Cost | undefined): number | null {
  const runs = Object.values(cost?.directions ?? {}).flatMap((direction) => direction.ns_per_packet ?? []);
  return runs.length > 0 ? Math.max(...runs) : null;
}

function costs(entry: HistoryEntry): string {
  const [before, after] = [nanoseconds(entry.cost_before), nanoseconds(entry.cost_after)];
  const shown = (ns: number | null) => (ns === null ? "" : duration(ns));
  return before === null ? shown(after) : `${shown(before)} → ${shown(after)}`;
}

/** The sender of a change, and the user that has logged in: all who use `sudo` are `uid:0`. */
const author = ({ who, from }: HistoryEntry) => [who, from?.login && `(${from.login})`].filter(Boolean).join(" ");

function origin(from: HistoryEntry["from"]): string {
  if (!from) return "";
  return from.address ?? from.file ?? (from.pid ? `process ${from.pid}` : "");
}

/** The changes of a probe, oldest first; none for roles that may not see them. */
export function useHistory(probe: Probe): HistoryEntry[] {
  const mine = may("operator");
  const [loading] = useAsk<{ history: HistoryEntry[] }>((signal) => (mine ? ask(`${probePath(probe.name)}/history`, { signal }) : Promise.resolve({ history: [] })), [probe.name, probe.revision, mine]);
  return loading.state === "there" ? loading.value.history : [];
}

/** The newest changes of a chart's time, in words. */
export function Changes({ changes }: { changes: HistoryEntry[] }) {
  if (changes.length === 0) return null;
  return (
    <ul class="muted changes" aria-label="Changes in this time">
      {changes.slice(-5).map((entry) => (
        <li key={`${entry.time} ${entry.revision}`}><span aria-hidden="true" class="mark" />{moment(entry.time)} {entry.change}{entry.who && ` by ${author(entry)}`}{entry.message && `: ${entry.message}`}</li>
      ))}
    </ul>
  );
}

export function History({ probe }: { probe: Probe }) {
  const [loading] = useAsk((signal) => ask<{ history: HistoryEntry[] }>(`${probePath(probe.name)}/history`, { signal }), [probe.name, probe.revision]);
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  return (
    <Section title="History">
      <Wide label="History" stacked>
        <thead><tr><th scope="col">Time</th><th scope="col">Change</th><th scope="col">Revision</th><th scope="col">By</th><th scope="col">From</th><th scope="col">Cost of a packet</th><th scope="col">Reason</th></tr></thead>
        <tbody>
          {[...loading.value.history].reverse().map((entry) => (
            <tr>
              <td data-label="Time">{moment(entry.time)}</td><td data-label="Change">{entry.change}</td><td data-label="Revision">{entry.revision}</td><td data-label="By">{author(entry)}</td>
              <td data-label="From">{origin(entry.from)}</td><td data-label="Cost of a packet">{costs(entry)}</td><td data-label="Reason" class="message">{entry.message ?? <span class="muted">none given</span>}</td>
            </tr>
          ))}
        </tbody>
      </Wide>
    </Section>
  );
}
