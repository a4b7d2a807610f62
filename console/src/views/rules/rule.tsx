// One rule: its firings, its document and its revisions.
import { rulePath } from "../../api/client.ts";
import { writeJson } from "../../api/json.ts";
import type { RuleRevision, RuleStatus } from "../../api/types.ts";
import { ruleDifferences } from "../../data/difference.ts";
import { exact, moment, plural } from "../../data/format.ts";
import { useLive } from "../../live/asked.ts";
import { may } from "../../live/changes.ts";
import { Empty, Panel, ProblemBox, Section, Tabs, Wide } from "../../parts/basics.tsx";
import { RevisionList } from "../../parts/revisions.tsx";
import { goKeeping } from "../../parts/route.ts";
import { Actions, lastFiring, maskedRule, NEEDED, Outcome, ProbeLinks, RuleState } from "./parts.tsx";

const TABS = [["firings", "Firings"], ["document", "Document"], ["revisions", "Revisions"]] as const;

function Firings({ rule }: { rule: RuleStatus }) {
  if (rule.firings.length === 0) return <Empty>The rule has not fired. It has judged the windows up to {exact(rule.window)}.</Empty>;
  return (
    <Wide label="Firings">
      <thead><tr><th scope="col" class="number">Window</th><th scope="col">Time</th><th scope="col">Actions</th><th scope="col">Outcome</th><th scope="col">Ended</th></tr></thead>
      <tbody>
        {[...rule.firings].reverse().map((firing) => (
          <tr key={`${firing.window} ${firing.time}`}>
            <th scope="row" class="number">{exact(firing.window)}</th><td class="time">{moment(firing.time)}</td><td class="message"><Actions actions={firing.do} /></td>
            <td class="message"><Outcome firing={firing} waiting={rule.notifications ?? []} /></td><td class="time">{firing.ended ? moment(firing.ended) : <span class="muted">not yet</span>}</td>
          </tr>
        ))}
      </tbody>
    </Wide>
  );
}

function RuleDocument({ rule: { rule } }: { rule: RuleStatus }) {
  return (
    <>
      <Section title="In words"><dl class="facts">
        <dt>Watches</dt><dd><ProbeLinks names={[rule.watch]} /></dd>
        <dt>Fires when</dt><dd><code>{rule.when}</code>{(rule.for ?? 1) > 1 && <> in {rule.for} windows in a row</>}</dd>
        <dt>Until</dt><dd>{rule.until ? <code>{rule.until}</code> : "that holds no longer"}</dd>
        <dt>Does</dt><dd><Actions actions={rule.do} /></dd>
        <dt>Cooldown</dt><dd>{rule.cooldown ?? "1m"}</dd>
        <dt>Actions in an hour</dt><dd>at most {rule.max_actions_per_hour ?? 20}</dd>
      </dl></Section>
      <Section title="As it was sent"><pre tabIndex={0} role="region" aria-label="Document">{writeJson(maskedRule(rule), 2)}</pre></Section>
    </>
  );
}

/** The numbers of the rule. */
function Status({ rule }: { rule: RuleStatus }) {
  const made = [...rule.probes, ...(rule.changed ?? [])];
  return (
    <dl class="figures">
      <div class="figure"><dt>Last firing</dt><dd>{lastFiring(rule)}</dd></div>
      <div class="figure"><dt>Actions left in this hour</dt><dd>{exact(rule.actions_left)}</dd></div>
      <div class="figure"><dt>Condition holds for</dt><dd>{plural(rule.holds, "window")} <span class="muted">fires at {exact(rule.rule.for ?? 1)}</span></dd></div>
      <div class="figure"><dt>Windows missed</dt><dd class={rule.missed > 0 ? "lost-number" : ""}>{exact(rule.missed)}</dd></div>
      <div class="figure"><dt>Probes made or changed</dt><dd>{made.length > 0 ? <ProbeLinks names={made} /> : "none"}</dd></div>
    </dl>
  );
}

function One({ name, tab }: { name: string; tab: string }) {
  const [loading, again] = useLive<RuleStatus>(rulePath(name), (one) => [one.rule.watch]);
  if (loading.state === "loading") return <><h1>{name}</h1><p class="empty" role="status">Loading…</p></>;
  if (loading.state === "failed") {
    return <><h1>{name}</h1>{loading.problem.status === 404 ? <Empty>There is no rule of this name. It may have been deleted. <a href="#/rules">Rules</a></Empty> : <ProblemBox problem={loading.problem} />}</>;
  }
  const rule = loading.value;
  const active = TABS.some(([id]) => id === tab) ? tab : TABS[0][0];
  return (
    <>
      <div class="view-head">
        <h1>{name}</h1>
        <RuleState rule={rule} />
        <p class="muted facts-line">
          watches <ProbeLinks names={[rule.rule.watch]} /> · window {exact(rule.window)} · revision {rule.revision} by {rule.pushed_by}, {moment(rule.created)} · may do what the role {rule.role} may
        </p>
      </div>
      {rule.state === "stopped" && <div class="problem" role="alert"><p><strong>The rule has stopped itself: {rule.reason}</strong></p></div>}
      {rule.last_error && rule.last_error !== rule.reason && <div class="warnings" role="note">Last error: <span class="message">{rule.last_error}</span></div>}
      {rule.no_value && <div class="warnings" role="note">Window {exact(rule.window)}: <span class="message">{rule.no_value}</span></div>}
      {rule.gone && <div class="warnings" role="note">Probes of this firing that are not there any more, because their lease is over or somebody has deleted them: {rule.gone.join(", ")}</div>}
      <Status rule={rule} />
      <Tabs label={`Views of ${name}`} tabs={TABS} active={active} onSelect={(id) => goKeeping("rule", name, id)} />
      <Panel tab={active}>
        {active === "firings" && <Firings rule={rule} />}
        {active === "document" && <RuleDocument rule={rule} />}
        {active === "revisions" && (
          <RevisionList<RuleRevision>
            path={rulePath(name)} revision={rule.revision} present="in force" single="The rule has had one document only."
            meaning="What the rule has begun ends, and the earlier document judges the windows from now on. It may then do what you may. A second rollback undoes this one."
            compare={(before, after) => ruleDifferences(maskedRule(before.rule), maskedRule(after.rule))} onBack={again}
          />
        )}
      </Panel>
    </>
  );
}

export function RuleView({ name, tab }: { name: string; tab: string }) {
  return may("operator") ? <One name={name} tab={tab} /> : <><h1>{name}</h1><p class="note">{NEEDED}</p></>;
}
