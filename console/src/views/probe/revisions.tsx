// What a probe was: its configurations, their differences, and the way back.
import { useState } from "preact/hooks";
import { ask, asProblem, type Problem, probePath, withReason } from "../../api/client.ts";
import type { Probe, Revision } from "../../api/types.ts";
import { differences } from "../../data/difference.ts";
import { moment } from "../../data/format.ts";
import { putProbe } from "../../live/changes.ts";
import { Badge, Dialog, Empty, ProblemBox, Reason, Section, Select, useAsk, Wide } from "../../parts/basics.tsx";
import { link, parameter } from "../../parts/route.ts";
import { History } from "./history.tsx";

function Differences({ before, after }: { before: Revision; after: Revision }) {
  const found = differences(before.config, after.config);
  if (found.length === 0) return <Empty>Revisions {before.revision} and {after.revision} are the same.</Empty>;
  return (
    <>
      {found.map((part) => (
        <figure class="diff">
          <figcaption>{part.title}</figcaption>
          <div class="table-scroll" tabIndex={0} role="region" aria-label={`Difference of the ${part.title}`}>
            <table>
              <thead class="hidden"><tr><th scope="col">Line of {before.revision}</th><th scope="col">Line of {after.revision}</th><th scope="col">Change</th><th scope="col">Text</th></tr></thead>
              {part.hunks.map((hunk) => (
                <tbody>
                  {hunk.map((line) => (
                    <tr class={line.kind}>
                      <td class="line">{line.old}</td><td class="line">{line.now}</td>
                      <td class="sign">{{ same: "", added: "+", removed: "−" }[line.kind]}</td><td><code>{line.text}</code></td>
                    </tr>
                  ))}
                </tbody>
              ))}
            </table>
          </div>
        </figure>
      ))}
    </>
  );
}

export function Revisions({ probe }: { probe: Probe }) {
  const [loading] = useAsk((signal) => ask<{ revisions: Revision[] }>(`${probePath(probe.name)}/revisions`, { signal }), [probe.name, probe.revision]);
  const [beforeId, setBefore] = parameter("old");
  const [afterId, setAfter] = parameter("new");
  const [target, setTarget] = useState<Revision | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [done, setDone] = useState("");
  const [reason, setReason] = useState("");
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  const { revisions } = loading.value;
  const find = (number: string | undefined) => revisions.find((revision) => String(revision.revision) === number);
  const after = find(afterId) ?? revisions[revisions.length - 1];
  const before = find(beforeId) ?? revisions[revisions.length - 2];
  const options = revisions.map((revision) => [String(revision.revision), `revision ${revision.revision}`] as const);
  const rollBack = async (to: Revision) => {
    setProblem(null);
    try {
      const now = await ask<Probe>(withReason(`${probePath(probe.name)}/rollback`, reason), { method: "POST", body: { revision: to.revision } });
      putProbe(now);
      setTarget(null);
      setReason("");
      setDone(`Revision ${to.revision} is deployed again, as revision ${now.revision}.`);
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <>
      <p role="status" class="good-text">{done}</p>
      <Wide label="Revisions">
        <thead><tr><th scope="col">Revision</th><th scope="col">Deployed</th><th scope="col">By</th><th scope="col">Reason</th><th scope="col">Actions</th></tr></thead>
        <tbody>
          {[...revisions].reverse().map((revision) => (
            <tr>
              <th scope="row">{revision.revision} {revision.current && <Badge kind="good">deployed</Badge>}</th>
              <td>{moment(revision.created)}</td><td>{revision.pushed_by ?? "unknown"}</td><td class="message">{revision.message ?? <span class="muted">none given</span>}</td>
              <td class="actions">
                {!revision.current && <button type="button" onClick={() => setTarget(revision)} aria-label={`Roll back… to revision ${revision.revision}`}>Roll back…</button>}
                <a href={`${link("edit", probe.name)}?revision=${revision.revision}`} aria-label={`Open in editor: revision ${revision.revision}`}>Open in editor</a>
              </td>
            </tr>
          ))}
        </tbody>
      </Wide>
      {target && (
        <Dialog title={`Roll back to revision ${target.revision}?`} onClose={() => setTarget(null)}>
          <p>The probe is replaced between two packets: none is missed, none is counted twice. Maps that both revisions define alike go on counting. A second rollback undoes this one.</p>
          <Reason value={reason} onChange={setReason} />
          {problem && <ProblemBox problem={problem} />}
          <div class="actions"><button type="button" class="primary" onClick={() => rollBack(target)}>Roll back</button><button type="button" onClick={() => setTarget(null)}>Cancel</button></div>
        </Dialog>
      )}
      {before && after && (
        <Section title="Difference" actions={<>
          <Select label="from" value={String(before.revision)} options={options} onChange={(id) => setBefore(id)} />
          <Select label="to" value={String(after.revision)} options={options} onChange={(id) => setAfter(id)} />
        </>}>
          <Differences before={before} after={after} />
        </Section>
      )}
      {!before && <Empty>The probe has had one configuration only.</Empty>}
      <History probe={probe} />
    </>
  );
}
