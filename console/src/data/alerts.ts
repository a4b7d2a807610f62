// Problems that the daemon itself reports: missing numbers, probes that do not run, interfaces that drop packets.
import type { Document, Probe, RuleStatus } from "../api/types.ts";
import { count, exact, moment, percent, plural } from "./format.ts";
import { metricAt, placesOf } from "./rows.ts";

export interface Alert {
  kind: "bad" | "warn";
  /** The probe, the interface or the rule that the alert is about. */
  about: string;
  text: string;
  /** The view of the probe that has details. */
  tab?: string;
  /** The address of another page with details. */
  at?: string[];
}

/** Attachments that a dispatcher or the kernel refused, and pending ones. */
function ofState(probe: Probe): Omit<Alert, "about">[] {
  const alerts: Omit<Alert, "about">[] = [];
  if (probe.state === "failed") alerts.push({ kind: "bad", text: `does not run: ${probe.reason ?? "no reason is known"}`, tab: "attachment" });
  const pending = probe.interfaces.filter((at) => at.state === "pending");
  for (const reason of new Set(pending.map((at) => at.reason))) {
    const names = [...new Set(pending.filter((at) => at.reason === reason).map((at) => at.interface))];
    alerts.push({ kind: "warn", text: `is not attached at ${names.join(", ")}: ${reason}`, tab: "attachment" });
  }
  return alerts;
}

function ofWindows({ windows }: Probe): Omit<Alert, "about">[] {
  const alerts: Omit<Alert, "about">[] = [];
  if (windows.error) alerts.push({ kind: "bad", text: `stores no windows: ${windows.error}`, tab: "windows" });
  if (windows.lost > 0) alerts.push({ kind: "bad", text: `${plural(windows.lost, "window")} went before a collector had acknowledged ${windows.lost === 1 ? "it" : "them"}`, tab: "windows" });
  if (windows.damaged > 0) alerts.push({ kind: "bad", text: `${plural(windows.damaged, "window")} damaged on disk`, tab: "windows" });
  if (windows.unreadable) alerts.push({ kind: "warn", text: `${plural(windows.unreadable, "window")} can't be read`, tab: "windows" });
  return alerts;
}

function ofEvents(probe: Probe): Omit<Alert, "about">[] {
  return (probe.events ?? []).flatMap((one): Omit<Alert, "about">[] => {
    const lost = (one.lost ?? 0) + one.missed;
    return lost > 0 ? [{ kind: "warn", text: `${plural(lost, "event")} of ${one.metric} lost`, tab: "events" }] : [];
  });
}

/** Maps without room, in the newest window. */
function ofMaps(newest: Document | undefined): Omit<Alert, "about">[] {
  if (!newest) return [];
  return placesOf(newest).flatMap((place): Omit<Alert, "about">[] => {
    const metric = metricAt(newest, place)!;
    const refused = (metric.completeness?.failed_inserts ?? 0) + (metric.completeness?.failed_reserves ?? 0);
    if (refused > 0) return [{ kind: "bad", text: `${place.direction} ${place.name} is not complete: ${exact(refused)} found no room in its map`, tab: "table" }];
    if (metric.full) return [{ kind: "warn", text: `${place.direction} ${place.name} is full (${exact(metric.max_entries ?? metric.entries.length)} entries): what comes may find no room`, tab: "table" }];
    return [];
  });
}

/** The problems of a probe, the worst first. */
export function alertsOf(probe: Probe, newest: Document | undefined): Alert[] {
  const all = [...ofState(probe), ...ofWindows(probe), ...ofMaps(newest), ...ofEvents(probe)];
  return all.map((alert) => ({ ...alert, about: probe.name })).sort((a, b) => Number(b.kind === "bad") - Number(a.kind === "bad"));
}

/** A rule that fires, or that has stopped. */
export function ofRule({ name, state, reason, firings, rule }: RuleStatus): Alert[] {
  const at = ["rule", name];
  if (state === "stopped") return [{ kind: "bad", about: name, text: `stands still: ${reason ?? "no reason is known"}`, at }];
  const last = firings[firings.length - 1];
  if (state !== "firing") return [];
  return [{ kind: "bad", about: name, text: `fires${last ? ` since ${moment(last.time)}` : ""}: windows of ${rule.watch} fulfil its condition`, at }];
}

/** The share of dropped packets, and their rate per second, from which drops are a problem. Every host drops a few: those
 * of LLDP, of the spanning tree protocol and of unused VLANs. */
const LOSS = { share: 0.01, rate: 10 };

interface Loss {
  packets: number;
  dropped: number;
}

/** The share of packets that are dropped. A driver may leave dropped packets out of those that it counts. */
const lossOf = ({ packets, dropped }: Loss) => dropped / Math.max(packets, dropped, 1);

/** True if so many packets are dropped that somebody should look for the cause. */
export const isLossy = (rate: Loss) => rate.dropped >= LOSS.rate && lossOf(rate) > LOSS.share;

const CAUSES = { received: "likely its queues are full, or nothing on the host takes the protocol or VLAN of these frames", "to be sent": "likely its queues are full" };

/** Packets that an interface drops now. */
export function dropsOf(name: string, rates: { ingress: Loss; egress: Loss } | undefined): Alert[] {
  if (!rates) return [];
  const ways = ([["received", rates.ingress], ["to be sent", rates.egress]] as const).filter(([, rate]) => isLossy(rate));
  return ways.map(([word, rate]) => ({ kind: "warn", about: name, text: `drops ${count(rate.dropped)} packets a second of those ${word} (${percent(lossOf(rate))}): ${CAUSES[word]}` }));
}
