// The name, the state and the actions of a rule, in words.
import { clock, moment } from "../../data/format.ts";
import type { Firing, RuleAction, RuleStatus } from "../../api/types.ts";
import { Badge } from "../../parts/basics.tsx";
import { link } from "../../parts/route.ts";

export function RuleState({ rule }: { rule: RuleStatus }) {
  return <Badge kind={({ watching: "good", firing: "warn", stopped: "bad" } as const)[rule.state]}>{rule.state}</Badge>;
}

/** Links to probes. One that is no longer there leads to a page that says so. */
export const ProbeLinks = ({ names }: { names: string[] }) => <>{names.map((name, index) => <>{index > 0 && ", "}<a href={link("probe", name)}>{name}</a></>)}</>;

/** An action in the words of `twinprobe rules`. */
export function words(action: RuleAction): string {
  if (action.apply) {
    const { name, probe, template, expires } = action.apply;
    const of = template ? ` of template ${template}` : probe && probe !== name ? ` (${probe})` : "";
    return `apply ${name}${of} for ${expires}`;
  }
  if (action.change) {
    const { name, sample, variables, defines } = action.change;
    const to = [sample !== undefined && `one packet in ${sample}`, ...Object.entries({ ...defines, ...variables }).map(([key, value]) => `${key} = ${JSON.stringify(value)}`)];
    return `change ${name}: ${to.filter(Boolean).join(", ")}`;
  }
  if (action.delete) return `delete ${action.delete}`;
  if (action.notify) return `notify ${action.notify}`;
  return `mark “${action.mark ?? ""}”`;
}

export const Actions = ({ actions }: { actions: RuleAction[] }) => <ul class="plain">{actions.map((action) => <li>{words(action)}</li>)}</ul>;

/** Whether the actions were taken, and whether what began has ended. */
export function Outcome({ firing }: { firing: Firing }) {
  if (firing.error) return <span class="bad-text">{firing.error}</span>;
  return <>{firing.done ? `taken ${clock(firing.done)}` : "being taken"}</>;
}

export const lastFiring = (rule: RuleStatus) => {
  const last = rule.firings[rule.firings.length - 1];
  return last ? moment(last.time) : "never";
};

export const NEEDED = "Rules need the role operator: who sees them sees the programs that they deploy.";
