// All rules in a table, and the templates that they deploy.
import type { RuleStatus, RuleTemplate } from "../../api/types.ts";
import { exact, moment } from "../../data/format.ts";
import { useLive } from "../../live/asked.ts";
import { may } from "../../live/changes.ts";
import { Empty, ProblemBox, Section, Wide } from "../../parts/basics.tsx";
import { link } from "../../parts/route.ts";
import { lastFiring, NEEDED, ProbeLinks, RuleState } from "./parts.tsx";

function RuleTable({ all }: { all: RuleStatus[] }) {
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Rules">
      <table class="probes stacked">
        <thead>
          <tr>
            <th scope="col">Rule</th><th scope="col">Watches</th><th scope="col">State</th><th scope="col">Condition</th>
            <th scope="col">Last firing</th><th scope="col" class="number">Actions left</th><th scope="col">Last error</th>
          </tr>
        </thead>
        <tbody>
          {all.map((one) => (
            <tr key={one.name}>
              <th scope="row"><a href={link("rule", one.name)}>{one.name}</a>{one.reason && one.reason !== one.last_error && <p class="reason">{one.reason}</p>}</th>
              <td class="whole" data-label="Watches"><span><ProbeLinks names={[one.rule.watch]} /></span></td>
              <td data-label="State"><span><RuleState rule={one} /></span></td>
              <td data-label="Condition"><code class="condition">{one.rule.when}</code></td>
              <td class="whole" data-label="Last firing">{lastFiring(one)}</td>
              <td class="number" data-label="Actions left">{exact(one.actions_left)}</td>
              <td data-label="Last error"><span class="message">{one.last_error ?? "none"}</span></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Templates() {
  const [loading] = useLive<{ templates: RuleTemplate[] }>("/v1/templates", () => []);
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  const { templates } = loading.value;
  if (templates.length === 0) return <Empty>There is no template. A template is a configuration that rules deploy with values of a window in it.</Empty>;
  return (
    <Wide label="Templates">
      <thead><tr><th scope="col">Template</th><th scope="col" class="number">Revision</th><th scope="col">Changed</th><th scope="col">By</th><th scope="col">Rules that name it</th></tr></thead>
      <tbody>
        {templates.map((one) => (
          <tr key={one.name}>
            <th scope="row">{one.name}</th><td class="number">{one.revision}</td><td>{moment(one.changed)}</td><td>{one.pushed_by}</td>
            <td>{one.rules.map((name, index) => <>{index > 0 && ", "}<a href={link("rule", name)}>{name}</a></>)}</td>
          </tr>
        ))}
      </tbody>
    </Wide>
  );
}

function List() {
  const [loading] = useLive<{ rules: RuleStatus[] }>("/v1/rules", ({ rules }) => rules.map((one) => one.rule.watch));
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  const { rules } = loading.value;
  return (
    <>
      {rules.length === 0
        ? <Empty>No rule runs here yet. A rule says what is done when the windows of a probe say so; <code>twinprobe rules apply</code> puts one.</Empty>
        : <RuleTable all={rules} />}
      <Section title="Templates"><Templates /></Section>
    </>
  );
}

export function Rules() {
  return (
    <>
      <div class="view-head"><h1>Rules</h1></div>
      {may("operator") ? <List /> : <p class="note">{NEEDED}</p>}
    </>
  );
}
