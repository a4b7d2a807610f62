// The traffic of each interface now and in the last minutes, also without a probe.
import { useState } from "preact/hooks";
import type { Probe } from "../../api/types.ts";
import { isLossy } from "../../data/alerts.ts";
import { bits, count, duration, exact, plural } from "../../data/format.ts";
import { carriers, type Interface, newest, placeOf } from "../../live/traffic.ts";
import { Empty, Section } from "../../parts/basics.tsx";
import { linkWith } from "../../parts/route.ts";
import { Spark } from "../../parts/spark.tsx";

const SHOWN = 6;
/** The least number of points across a line: a minute, so that the first few do not fill it. */
const MOMENTS = 30;
/** The most points of a line: five minutes. */
const LONGEST = 150;
const WAYS = [["ingress", "in"], ["egress", "out"]] as const;

/** The names of the probes at each interface. */
export function probesAt(all: Probe[]): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const probe of all) {
    for (const at of probe.interfaces) {
      if (at.state !== "attached") continue;
      const id = placeOf(probe.config.netns, at.ifindex!);
      found.set(id, (found.get(id) ?? new Set()).add(probe.name));
    }
  }
  return found;
}

export const interfaceLink = ({ name, netns }: Interface) => linkWith(["interface", name], [["netns", netns ?? null]]);

function Card({ one, probes }: { one: Interface; probes: number }) {
  const now = newest(one);
  const past = one.past.slice(-LONGEST);
  const bitsOf = (way: "ingress" | "egress") => past.map((moment) => moment[way].bytes * 8);
  const span = past.length > 1 ? duration((past[past.length - 1]!.time - past[0]!.time) * 1e9) : "no time yet";
  return (
    <article class="card interface">
      <h3><a href={interfaceLink(one)}>{one.name}</a>{one.netns && <span class="muted"> in {one.netns}</span>}<span class="muted aside">{probes > 0 ? plural(probes, "probe") : "no probe"}</span></h3>
      <Spark label={`Bits per second of ${one.name} over ${span}`} lines={[bitsOf("ingress"), bitsOf("egress")]} length={Math.max(MOMENTS, past.length)} />
      <table>
        <thead><tr><th scope="col"><span class="hidden">Direction</span></th><th scope="col" class="number">bits/s</th><th scope="col" class="number">packets/s</th><th scope="col" class="number">dropped/s</th></tr></thead>
        <tbody>
          {WAYS.map(([way, word], index) => {
            const rate = now?.[way];
            return (
              <tr>
                <th scope="row"><span aria-hidden="true" class={`swatch line-${index + 1}`} />{word}</th>
                <td class="number">{rate ? `${bits(rate.bytes * 8)}/s` : "–"}</td>
                <td class="number">{rate ? count(rate.packets) : "–"}</td>
                <td class="number"><span class={rate && isLossy(rate) ? "bad-text" : "muted"}>{rate ? count(rate.dropped) : "–"}</span></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </article>
  );
}

export function Interfaces({ probes }: { probes: Probe[] }) {
  const [whole, setWhole] = useState(false);
  const at = probesAt(probes);
  // The loopback interface is last, unless a probe runs on it.
  const isLast = (one: Interface) => one.name === "lo" && !at.has(one.id);
  const all = [...carriers.value].sort((a, b) => Number(isLast(a)) - Number(isLast(b)) || Number(at.has(b.id)) - Number(at.has(a.id)));
  const shown = whole ? all : all.slice(0, SHOWN);
  const more = all.length - SHOWN;
  return (
    <Section title="Traffic" actions={more > 0 && <button type="button" aria-expanded={whole} onClick={() => setWhole(!whole)}>{whole ? "Show fewer" : `Show ${exact(more)} more`}</button>}>
      {all.length === 0 ? <Empty>The counters of interfaces come within two seconds. Your role sees those that probes are attached to.</Empty> : (
        <div class="cards">{shown.map((one) => <Card key={one.id} one={one} probes={at.get(one.id)?.size ?? 0} />)}</div>
      )}
    </Section>
  );
}
