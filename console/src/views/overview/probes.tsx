// All probes in a table, and figures over all of them.
import type { ComponentChildren } from "preact";
import type { Probe } from "../../api/types.ts";
import { bytes, count, duration, exact, percent, plural } from "../../data/format.ts";
import { placeOf, rateOf } from "../../live/traffic.ts";
import { link, linkWith } from "../../parts/route.ts";
import { nanoseconds, share, StateBadge, sum } from "./state.tsx";

function Interfaces({ probe }: { probe: Probe }) {
  const names = [...new Set(probe.interfaces.map((at) => at.interface))];
  const netns = typeof probe.config.netns === "string" ? probe.config.netns : null;
  const pending = new Set(probe.interfaces.filter((at) => at.state === "pending").map((at) => at.interface));
  return (
    <>
      {names.slice(0, 4).map((name, index) => (
        <>{index > 0 && ", "}{pending.has(name) ? <span class="warn-text">{name}</span> : <a class="quiet" href={linkWith(["interface", name], [["netns", netns]])}>{name}</a>}</>
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

export function Summary({ all }: { all: Probe[] }) {
  const places = new Map<string, number>();
  for (const probe of all) {
    for (const at of probe.interfaces) {
      if (at.state !== "attached") continue;
      const rate = rateOf({ ...probe, interfaces: [at] });
      if (rate) places.set(`${placeOf(probe.config.netns, at.ifindex!)} ${at.direction}`, rate.packets);
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

export function ProbeTable({ all }: { all: Probe[] }) {
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Probes">
      <table class="probes stacked">
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
                <td data-label="State"><StateBadge probe={probe} />{probe.warnings.length > 0 && <span class="warn-text"> {plural(probe.warnings.length, "warning")}</span>}</td>
                <td data-label="Interfaces"><Interfaces probe={probe} /></td>
                <td class="number" data-label="Packets/s">{rate ? count(rate.packets) : "–"}</td>
                <td class="number" data-label="Cost per packet">{ns === null ? "–" : duration(ns * 1)}</td>
                <td class="number" data-label="Share of a CPU">{part === null ? "–" : percent(part)}</td>
                <td class="number" data-label="Windows retained">{exact(probe.windows.retained)}{probe.config.window?.interval && <span class="muted"> every {probe.config.window.interval}</span>}</td>
                <td class="number" data-label="Lost"><span class={probe.windows.lost > 0 ? "bad-text" : ""}>{exact(probe.windows.lost)}</span></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
