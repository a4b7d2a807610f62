// The current problems, above everything else. Empty while there are none.
import type { Probe } from "../../api/types.ts";
import { type Alert, alertsOf, dropsOf, ofRule } from "../../data/alerts.ts";
import { plural } from "../../data/format.ts";
import { may, probes } from "../../live/changes.ts";
import { judged } from "../../live/rules.ts";
import { standings } from "../../live/newest.ts";
import { carriers, newest } from "../../live/traffic.ts";
import { Badge, Section } from "../../parts/basics.tsx";
import { link } from "../../parts/route.ts";

/** With `isHere` (on the probe's page) its name is left out. */
export function AlertList({ alerts, isHere = false }: { alerts: Alert[]; isHere?: boolean }) {
  return (
    <ul class="alerts">
      {alerts.map((alert) => (
        <li key={`${alert.about} ${alert.text}`}>
          <Badge kind={alert.kind}>{alert.kind === "bad" ? "alert" : "warning"}</Badge>{" "}
          {isHere ? null : alert.at ? <a href={link(...alert.at)}>{alert.about}</a> : alert.tab ? <a href={link("probe", alert.about, alert.tab)}>{alert.about}</a> : <strong>{alert.about}</strong>} {alert.text}
        </li>
      ))}
    </ul>
  );
}

/** All current problems, the worst first. */
export function problems(probes: Probe[]): Alert[] {
  // A user who may not read windows must not see their content, even if another user was signed in here before.
  const newestOf = (probe: Probe) => (may("collector") ? standings.value.get(probe.name)?.windows.at(-1) : undefined);
  const ofProbes = probes.flatMap((probe) => alertsOf(probe, newestOf(probe)));
  const all = [...judged.value.flatMap(ofRule), ...ofProbes, ...carriers.value.flatMap((one) => dropsOf(one.name, newest(one)))];
  return all.sort((a, b) => Number(b.kind === "bad") - Number(a.kind === "bad"));
}

export function Alerts({ probes }: { probes: Probe[] }) {
  const all = problems(probes);
  return all.length > 0 ? <Section title="Alerts"><AlertList alerts={all} /></Section> : null;
}

/** The number of problems, on each page. */
export function AlertCount() {
  const all = problems([...probes.value.values()]);
  if (all.length === 0) return null;
  return <a class={`badge ${all[0]!.kind}`} href="#/" title={all.map(({ about, text }) => `${about} ${text}`).slice(0, 5).join("\n")}>{plural(all.length, "alert")}</a>;
}
