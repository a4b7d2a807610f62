// The changes of all probes, including removed ones.
import type { HistoryEntry } from "../api/types.ts";
import { exact } from "../data/format.ts";
import { useLive } from "../live/asked.ts";
import { may } from "../live/changes.ts";
import { Empty, ProblemBox } from "../parts/basics.tsx";
import { parameter } from "../parts/route.ts";
import { HistoryTable, wordsOf } from "./probe/history.tsx";

function List() {
  const [loading] = useLive<{ history: HistoryEntry[] }>("/v1/history", () => []);
  const [filter, setFilter] = parameter("filter");
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const all = loading.value.history;
  const found = all.filter((entry) => words.every((word) => wordsOf(entry).includes(word)));
  return (
    <>
      <div class="controls">
        <label class="field grow"><span>Filter</span><input type="search" value={filter} placeholder="a probe, a user, a day, a reason" onInput={(event) => setFilter(event.currentTarget.value, true)} /></label>
        <p class="muted summary" role="status">{words.length > 0 ? `${exact(found.length)} of ${exact(all.length)}` : exact(all.length)} changes</p>
      </div>
      {found.length === 0 ? <Empty>{all.length > 0 ? "No change has these words." : "Nothing was changed in the time that the daemon keeps."}</Empty> : <HistoryTable entries={found} isWide />}
    </>
  );
}

export function AllHistory() {
  return (
    <>
      <div class="view-head"><h1>Changes</h1></div>
      {may("operator") ? <List /> : <p class="note">Changes need the role operator: who sees them sees who deploys what.</p>}
    </>
  );
}
