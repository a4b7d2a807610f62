// The revisions of a probe or a rule: their documents, their differences, and the rollback.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ask, asProblem, type Problem, withReason } from "../api/client.ts";
import type { Past } from "../api/types.ts";
import type { Difference } from "../data/difference.ts";
import { moment } from "../data/format.ts";
import { Badge, Dialog, Empty, ProblemBox, Reason, Section, Select, useAsk, Wide } from "./basics.tsx";
import { parameter } from "./route.ts";

function Differences({ before, after, found }: { before: Past; after: Past; found: Difference[] }) {
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

interface Props<T extends Past> {
  /** The path of the probe or the rule in the API. */
  path: string;
  /** The newest revision that the console knows. If it changes, the console requests the list again. */
  revision: number;
  /** The name of the present revision, and the text if it is the only one. */
  present: string;
  single: string;
  /** The effect of a rollback. */
  meaning: string;
  compare: (before: T, after: T) => Difference[];
  /** Further actions for a revision. */
  more?: (revision: T) => ComponentChildren;
  onBack: (now: any) => void;
}

export function RevisionList<T extends Past>({ path, revision: known, present, single, meaning, compare, more, onBack }: Props<T>) {
  const [loading] = useAsk((signal) => ask<{ revisions: T[] }>(`${path}/revisions`, { signal }), [path, known]);
  const [beforeId, setBefore] = parameter("old");
  const [afterId, setAfter] = parameter("new");
  const [target, setTarget] = useState<T | null>(null);
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
  const close = () => {
    setTarget(null);
    setProblem(null);
  };
  const rollBack = async (to: T) => {
    setProblem(null);
    try {
      const now = await ask<{ revision: number }>(withReason(`${path}/rollback`, reason), { method: "POST", body: { revision: to.revision } });
      onBack(now);
      close();
      setReason("");
      setDone(`Revision ${to.revision} is ${present} again, as revision ${now.revision}.`);
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <>
      <p role="status" class="good-text">{done}</p>
      <Section title="Revisions">
        <Wide label="Revisions" stacked>
          <thead><tr><th scope="col">Revision</th><th scope="col">Since</th><th scope="col">By</th><th scope="col">Reason</th><th scope="col">Actions</th></tr></thead>
          <tbody>
            {[...revisions].reverse().map((revision) => (
              <tr>
                <th scope="row">{revision.revision} {revision.current && <Badge kind="good">{present}</Badge>}</th>
                <td data-label="Since">{moment(revision.created)}</td><td data-label="By">{revision.pushed_by ?? "unknown"}</td><td data-label="Reason" class="message">{revision.message ?? <span class="muted">none given</span>}</td>
                <td data-label="Actions">
                  <div class={more || !revision.current ? "actions" : undefined}>
                    {!revision.current && <button type="button" onClick={() => setTarget(revision)} aria-label={`Roll back… to revision ${revision.revision}`}>Roll back…</button>}
                    {more?.(revision)}
                  </div>
                </td>
              </tr>
            ))}
          </tbody>
        </Wide>
      </Section>
      {target && (
        <Dialog title={`Roll back to revision ${target.revision}?`} onClose={close}>
          <p>{meaning}</p>
          <Reason value={reason} onChange={setReason} />
          {problem && <ProblemBox problem={problem} />}
          <div class="actions"><button type="button" class="primary" onClick={() => rollBack(target)}>Roll back</button><button type="button" onClick={close}>Cancel</button></div>
        </Dialog>
      )}
      {before && after && (
        <Section title="Difference" actions={<>
          <Select label="from" value={String(before.revision)} options={options} onChange={(id) => setBefore(id)} />
          <Select label="to" value={String(after.revision)} options={options} onChange={(id) => setAfter(id)} />
        </>}>
          <Differences before={before} after={after} found={compare(before, after)} />
        </Section>
      )}
      {!before && <Empty>{single}</Empty>}
    </>
  );
}
