// The history of a probe: author, time, origin and reason of each change, and the cost before and after it.
import { ask, probePath } from "../../api/client.ts";
import type { Cost, HistoryEntry, Probe } from "../../api/types.ts";
import { duration, moment } from "../../data/format.ts";
import { may, probes } from "../../live/changes.ts";
import { ProblemBox, Section, useAsk, Wide } from "../../parts/basics.tsx";
import { link } from "../../parts/route.ts";

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

/** The sender of a change and the login user, because all users of `sudo` are `uid:0`. */
const author = ({ who, from }: HistoryEntry) => [who, from?.login && `(${from.login})`].filter(Boolean).join(" ");

function origin(from: HistoryEntry["from"]): string {
  if (!from) return "";
  return from.address ?? from.file ?? [from.user, from.pid && (from.program ? `${from.program}[${from.pid}]` : `process ${from.pid}`)].filter(Boolean).join(" ");
}

/** The changes of a probe, oldest first; none for roles that may not see them. */
export function useHistory(probe: Probe): HistoryEntry[] {
  const mine = may("operator");
  const [loading] = useAsk<{ history: HistoryEntry[] }>((signal) => (mine ? ask(`${probePath(probe.name)}/history`, { signal }) : Promise.resolve({ history: [] })), [probe.name, probe.revision, mine]);
  return loading.state === "there" ? loading.value.history : [];
}

/** The newest changes in a chart's time, in words. */
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

/** Changes as a table, the newest first. With `isWide`, each has the name of its probe. */
export function HistoryTable({ entries, isWide = false }: { entries: HistoryEntry[]; isWide?: boolean }) {
  return (
    <Wide label="History" stacked>
      <thead><tr><th scope="col">Time</th>{isWide && <th scope="col">Probe</th>}<th scope="col">Change</th><th scope="col">Revision</th><th scope="col">By</th><th scope="col">From</th><th scope="col">Cost of a packet</th><th scope="col">Reason</th></tr></thead>
      <tbody>
        {[...entries].reverse().map((entry) => (
          <tr>
            <td data-label="Time" class="time">{moment(entry.time)}</td>{isWide && <td data-label="Probe">{probes.value.has(entry.probe) ? <a href={link("probe", entry.probe, "revisions")}>{entry.probe}</a> : entry.probe}</td>}<td data-label="Change">{entry.change}</td><td data-label="Revision">{entry.revision}</td><td data-label="By">{author(entry)}</td>
            <td data-label="From">{origin(entry.from)}</td><td data-label="Cost of a packet">{costs(entry)}</td><td data-label="Reason" class="message">{entry.message ?? <span class="muted">none given</span>}</td>
          </tr>
        ))}
      </tbody>
    </Wide>
  );
}

/** The text of a change that a filter searches. */
export const wordsOf = (entry: HistoryEntry) => [moment(entry.time), entry.probe, entry.change, author(entry), origin(entry.from), entry.message].join(" ").toLowerCase();

export function History({ probe }: { probe: Probe }) {
  const [loading] = useAsk((signal) => ask<{ history: HistoryEntry[] }>(`${probePath(probe.name)}/history`, { signal }), [probe.name, probe.revision]);
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  return <Section title="History"><HistoryTable entries={loading.value.history} /></Section>;
}
