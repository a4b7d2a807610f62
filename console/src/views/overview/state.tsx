// The details beside a probe's name in every list: its state, its cost, its problems.
import type { Probe } from "../../api/types.ts";
import { rateOf } from "../../live/traffic.ts";
import { Badge } from "../../parts/basics.tsx";

export const sum = (numbers: number[]) => numbers.reduce((all, one) => all + one, 0);

/** The nanoseconds per packet in the slower direction: measured under traffic, or else in the trial. */
export function nanoseconds(probe: Probe): number | null {
  const live = probe.cost?.live?.map((one) => one.ns_per_packet) ?? [];
  if (live.length > 0) return Math.max(...live);
  const trial = Object.values(probe.cost?.directions ?? {}).flatMap((one) => one.ns_per_packet ?? []);
  return trial.length > 0 ? Math.max(...trial) : null;
}

/** The share of one CPU that the probe takes now, from packets per second and their cost. */
export function share(probe: Probe): number | null {
  const parts = (["ingress", "egress"] as const).map((direction) => {
    const rate = rateOf(probe, direction);
    const ns = probe.cost?.directions[direction]?.ns_per_packet;
    return rate && ns ? (rate.packets * ns) / 1e9 : null;
  });
  const known = parts.filter((part) => part !== null);
  return known.length > 0 ? sum(known) : null;
}

export function StateBadge({ probe }: { probe: Probe }) {
  const pending = probe.interfaces.filter((at) => at.state === "pending");
  if (probe.state === "failed") return <Badge kind="bad">failed</Badge>;
  if (pending.length > 0) return <Badge kind="warn">{pending.length === probe.interfaces.length ? "waiting" : "partly attached"}</Badge>;
  return <Badge kind="good">running</Badge>;
}
