// The current problems, above everything else. Empty while there are none.
import type { Probe } from "../../api/types.ts";
import { type Alert, alertsOf, dropsOf } from "../../data/alerts.ts";
import { may } from "../../live/changes.ts";
import { standings } from "../../live/newest.ts";
import { carriers, newest } from "../../live/traffic.ts";
import { Badge, Section } from "../../parts/basics.tsx";
import { link } from "../../parts/route.ts";

/** With `isHere`, on the page of the probe, its name is left out. */
export function AlertList({ alerts, isHere = false }: { alerts: Alert[]; isHere?: boolean }) {
  return (
    <ul class="alerts">
      {alerts.map((alert) => (
        <li key={`${alert.about} ${alert.text}`}>
          <Badge kind={alert.kind}>{alert.kind === "bad" ? "alert" : "warning"}</Badge>{" "}
          {isHere ? null : alert.tab ? <a href={link("probe", alert.about, alert.tab)}>{alert.about}</a> : <strong>{alert.about}</strong>} {alert.text}
        </li>
      ))}
    </ul>
  );
}

export function Alerts({ probes }: { probes: Probe[] }) {
  // A user who may not read windows must not see their content, even if another user was signed in here before.
  const newestOf = (probe: Probe) => (may("collector") ? standings.value.get(probe.name)?.windows.at(-1) : undefined);
  const ofProbes = probes.flatMap((probe) => alertsOf(probe, newestOf(probe)));
  const all = [...ofProbes, ...carriers.value.flatMap((one) => dropsOf(one.name, newest(one)))];
  if (all.length === 0) return null;
  const order = [...all].sort((a, b) => Number(b.kind === "bad") - Number(a.kind === "bad"));
  return <Section title="Alerts"><AlertList alerts={order} /></Section>;
}
