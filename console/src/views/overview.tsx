// All probes at a glance.
import type { ComponentChildren } from "preact";
import type { Probe } from "../api/types.ts";
import { bytes, count, duration, exact, plural } from "../data/format.ts";
import { may, probes, rateOf } from "../live/changes.ts";
import { Badge, Empty } from "../parts/basics.tsx";
import { link } from "../parts/route.ts";

const sum = (numbers: number[]) => numbers.reduce((all, one) => all + one, 0);

/** The nanoseconds that a packet takes, by direction, as the trial found it or as it was measured. */
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

const percent = (part: number) => (part === 0 ? "0 %" : part < 0.0001 ? "< 0.01 %" : `${(part * 100).toFixed(part < 0.01 ? 2 : 1)} %`);

export function StateBadge({ probe }: { probe: Probe }) {
  const pending = probe.interfaces.filter((at) => at.state === "pending");
  if (probe.state === "failed") return <Badge kind="bad">failed</Badge>;
  if (pending.length > 0) return <Badge kind="warn">{pending.length === probe.interfaces.length ? "waiting" : "partly attached"}</Badge>;
  return <Badge kind="good">running</Badge>;
}

function Interfaces({ probe }: { probe: Probe }) {
  const names = [...new Set(probe.interfaces.map((at) => at.interface))];
  const pending = new Set(probe.interfaces.filter((at) => at.state === "pending").map((at) => at.interface));
  return (
    <>
      {names.slice(0, 4).map((name, index) => (
        <>{index > 0 && ", "}<span class={pending.has(name) ? "warn-text" : ""}>{name}</span></>
      ))}
      {names.length > 4 && <span class="muted"> and {names.length - 4} more</span>}
    </>
  );
}

function Trouble({ probe }: { probe: Probe }) {
  const reasons = [probe.reason, probe.windows.error, ...new Set(probe.interfaces.filter((at) => at.state === "pending").map((at) => at.reason))];
  const known = reasons.filter(Boolean);
  return known.length > 0 ? <p class="reason">{known.slice(0, 3).join("; ")}</p> : null;
}

function Figure({ title, children }: { title: string; children: ComponentChildren }) {
  return <div class="figure"><dt>{title}</dt><dd>{children}</dd></div>;
}

function Summary({ all }: { all: Probe[] }) {
  const places = new Map<string, number>();
  for (const probe of all) {
    for (const at of probe.interfaces) {
      if (at.state !== "attached") continue;
      const rate = rateOf({ ...probe, interfaces: [at] });
      if (rate) places.set(`${probe.config.netns ?? ""} ${at.ifindex} ${at.direction}`, rate.packets);
    }
  }
  const shares = all.map(share).filter((part) => part !== null);
  const lost = sum(all.map((probe) => probe.windows.lost));
  const missed = all.some((probe) => probe.windows.lost > 0);
  const failed = all.filter((probe) => probe.state === "failed").length;
  return (
    <dl class="figures">
      <Figure title="Probes">{all.length}{failed > 0 && <span class="bad-text"> {failed} failed</span>}</Figure>
      <Figure title="Packets per second">{places.size > 0 ? count(sum([...places.values()])) : "–"}</Figure>
      <Figure title="Share of one CPU">{shares.length > 0 ? percent(sum(shares)) : "–"}</Figure>
      <Figure title="Windows retained">{exact(sum(all.map((probe) => probe.windows.retained)))} <span class="muted">{bytes(sum(all.map((probe) => probe.windows.bytes)))}</span></Figure>
      <Figure title="Windows lost"><span class={missed ? "lost-number" : ""}>{exact(lost)}</span></Figure>
    </dl>
  );
}

export function Overview() {
  const all = [...probes.value.values()];
  return (
    <>
      <div class="view-head">
        <h1>Overview</h1>
        {may("operator") && <a class="button primary" href="#/new">New probe</a>}
      </div>
      <Summary all={all} />
      {all.length === 0 ? (
        <Empty>
          No probe runs here yet. {may("operator") ? <>A probe is a small program that looks at packets and counts. <a href="#/new">Choose one of the library</a>, or write your own.</> : "Your role may not deploy one."}
        </Empty>
      ) : (
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Probes">
          <table class="probes">
            <thead>
              <tr>
                <th scope="col">Probe</th><th scope="col">State</th><th scope="col">Interfaces</th>
                <th scope="col" class="number">Packets/s</th><th scope="col" class="number">Cost per packet</th>
                <th scope="col" class="number">Share of a CPU</th><th scope="col" class="number">Windows retained</th><th scope="col" class="number">Lost</th>
              </tr>
            </thead>
            <tbody>
              {all.map((probe) => {
                const [rate, ns, part] = [rateOf(probe), nanoseconds(probe), share(probe)];
                return (
                  <tr>
                    <th scope="row"><a href={link("probe", probe.name)}>{probe.name}</a><Trouble probe={probe} /></th>
                    <td><StateBadge probe={probe} />{probe.warnings.length > 0 && <span class="warn-text"> {plural(probe.warnings.length, "warning")}</span>}</td>
                    <td><Interfaces probe={probe} /></td>
                    <td class="number">{rate ? count(rate.packets) : "–"}</td>
                    <td class="number">{ns === null ? "–" : duration(ns * 1)}</td>
                    <td class="number">{part === null ? "–" : percent(part)}</td>
                    <td class="number">{exact(probe.windows.retained)}{probe.config.window?.interval && <span class="muted"> every {probe.config.window.interval}</span>}</td>
                    <td class="number"><span class={probe.windows.lost > 0 ? "bad-text" : ""}>{exact(probe.windows.lost)}</span></td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
