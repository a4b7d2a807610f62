// The state of the rules, for the pages that show problems. The stream of changes does not have it.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { RuleStatus } from "../api/types.ts";
import { useLive } from "./asked.ts";

export const judged = signal<RuleStatus[]>([]);

/** Keeps [`judged`] up to date while it is on the page, for users who may see rules. */
export function FollowRules() {
  const [loading] = useLive<{ rules: RuleStatus[] }>("/v1/rules", ({ rules }) => rules.map((one) => one.rule.watch));
  useEffect(() => {
    if (loading.state === "there") judged.value = loading.value.rules;
  }, [loading]);
  useEffect(() => () => void (judged.value = []), []);
  return null;
}
