// The name, the state and the actions of a rule, in words.
import { clock, moment } from "../../data/format.ts";
import type { Firing, Rule, RuleAction, RuleNotification, RuleStatus } from "../../api/types.ts";
import { Badge } from "../../parts/basics.tsx";
import { link } from "../../parts/route.ts";

export function RuleState({ rule }: { rule: RuleStatus }) {
  return <Badge kind={({ watching: "good", waiting: "warn", firing: "warn", stopped: "bad" } as const)[rule.state]}>{rule.state}</Badge>;
}

/** Links to probes. The page of a removed probe says so. */
export const ProbeLinks = ({ names }: { names: string[] }) => <>{names.map((name, index) => <>{index > 0 && ", "}<a href={link("probe", name)}>{name}</a></>)}</>;

/** A URL without the password before its host. A user without a password may be a token. */
export const masked = (url: string) =>
  url.replace(/^([^/?#]*:\/\/)?([^/?#]*)@/, (_, scheme: string | undefined, user: string) => `${scheme ?? ""}${user.includes(":") ? `${user.slice(0, user.indexOf(":"))}:` : ""}***@`);

/** A rule without the passwords in its URLs. */
export const maskedRule = (rule: Rule): Rule => ({ ...rule, do: rule.do.map((action) => (action.notify ? { ...action, notify: masked(action.notify) } : action)) });

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
  if (action.notify) return `notify ${masked(action.notify)}`;
  return `mark “${action.mark ?? ""}”`;
}

export const Actions = ({ actions }: { actions: RuleAction[] }) => <ul class="plain">{actions.map((action) => <li>{words(action)}</li>)}</ul>;

/** Whether the actions were taken, and whether their effects ended. */
export function Outcome({ firing, waiting }: { firing: Firing; waiting: RuleNotification[] }) {
  if (firing.error) return <span class="bad-text">{firing.error}</span>;
  const [first] = waiting.filter((one) => one.window === firing.window);
  if (first) return <>the notification has not arrived after {first.attempts} attempts{first.error && `: ${first.error}`}</>;
  return <>{firing.done ? `taken ${clock(firing.done)}` : "being taken"}</>;
}

export const lastFiring = (rule: RuleStatus) => {
  const last = rule.firings[rule.firings.length - 1];
  return last ? moment(last.time) : "never";
};

export const NEEDED = "Rules need the role operator: who sees them sees the programs that they deploy.";
