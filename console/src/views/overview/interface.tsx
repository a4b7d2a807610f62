// One interface: its traffic over time, the probes at it, and their largest keys.
import type { ComponentChildren } from "preact";
import { bits, clock, count, plural } from "../../data/format.ts";
import { percentileOf } from "../../data/numbers.ts";
import { rangeOf } from "../../data/range.ts";
import { may, probes } from "../../live/changes.ts";
import { carriers, type Moment, type Rate } from "../../live/traffic.ts";
import { Empty, Section, Wide } from "../../parts/basics.tsx";
import { Chart } from "../../parts/chart.tsx";
import { chooseRange } from "../../parts/range.tsx";
import { route } from "../../parts/route.ts";
import { ProbeTable } from "./probes.tsx";
import { Tops } from "./tops.tsx";

const WAYS = [["ingress", "in"], ["egress", "out"]] as const;

interface Quantity {
  title: string;
  of: (rate: Rate) => number;
  format: (value: number) => string;
}

const QUANTITIES: Quantity[] = [
  { title: "bits per second", of: (rate) => rate.bytes * 8, format: (value) => `${bits(value)}/s` },
  { title: "packets per second", of: (rate) => rate.packets, format: (value) => `${count(value)}/s` },
  { title: "dropped packets per second", of: (rate) => rate.dropped, format: (value) => `${count(value)}/s` },
];

const sum = (values: number[]) => values.reduce((all, one) => all + one, 0);

/** The mean, the 95th percentile and the largest number of each direction. */
function Figures({ past, children }: { past: Moment[]; children: ComponentChildren }) {
  return (
    <Section title="In this time">
      <Wide label="In this time" stacked>
        <thead><tr><th scope="col">Numbers</th><th scope="col">Direction</th><th scope="col" class="number">newest</th><th scope="col" class="number">mean</th><th scope="col" class="number">p95</th><th scope="col" class="number">largest</th></tr></thead>
        <tbody>
          {QUANTITIES.flatMap(({ title, of, format }) => WAYS.map(([way, word]) => {
            const values = past.map((moment) => of(moment[way]));
            const shown = [["newest", values[values.length - 1]!], ["mean", sum(values) / values.length], ["p95", percentileOf(values, 0.95)!], ["largest", Math.max(...values)]] as const;
            return <tr><th scope="row">{title}</th><td data-label="Direction">{word}</td>{shown.map(([name, value]) => <td class="number" data-label={name}>{format(value)}</td>)}</tr>;
          }))}
        </tbody>
      </Wide>
      {children}
    </Section>
  );
}

export function InterfaceView({ name, netns }: { name: string; netns?: string }) {
  const one = carriers.value.find((one) => one.name === name && one.netns === netns);
  const here = [...probes.value.values()].filter((probe) => (probe.config.netns ?? undefined) === netns && probe.interfaces.some((at) => at.interface === name));
  const range = rangeOf(route.value.query);
  const inside = (one?.past ?? []).filter(({ time }) => !range || (time * 1000 >= range.from && time * 1000 <= range.to));
  const times = inside.map(({ time }) => time);
  const first = inside[0];
  // A chart spans at least a minute, so that the first points do not fill it.
  const last = times[times.length - 1] ?? 0;
  const shown = !range ? { from: Math.min(times[0] ?? 0, last - 60), to: last } : { from: range.from / 1000, to: range.to < Infinity ? range.to / 1000 : last };
  const charts = QUANTITIES.map((quantity) => ({ quantity, lines: WAYS.map(([way, word]) => ({ label: word, total: 0, values: inside.map((moment) => quantity.of(moment[way])) })) }));
  return (
    <>
      <div class="view-head">
        <h1>{name}</h1>
        <p class="muted facts-line">{netns && `in ${netns} · `}{here.length > 0 ? plural(here.length, "probe") : "no probe"}</p>
      </div>
      {!one ? <Empty>There is no interface of this name, or your role does not see it. <a href="#/">Overview</a></Empty> : !first ? (
        <Empty>{range ? "Nothing of this time is here." : "The first numbers come within four seconds."} {range && <button type="button" onClick={() => chooseRange(null)}>Show all</button>}</Empty>
      ) : (
        <>
          <Section title="Traffic" actions={range && <button type="button" onClick={() => chooseRange(null)}>Show all</button>}>
            <div class="cards small-charts">{charts.filter(({ quantity, lines }) => quantity.title !== "dropped packets per second" || lines.some((line) => line.values.some((value) => value > 0))).map(({ quantity, lines }) => (
              <article class="card">
                <h3>{quantity.title}</h3>
                <Chart label={`${quantity.title} of ${name}`} times={times} lines={lines} format={quantity.format} hasOthers={false} range={shown} height={180} newest="newest" onZoom={(zoom) => chooseRange(zoom && { from: zoom.from * 1000, to: zoom.to * 1000 })} />
              </article>
            ))}</div>
          </Section>
          <Figures past={inside}>
            <p class="muted">The kernel's own counters since {clock(first.time * 1000)}: this page keeps them for half an hour, from when it was opened. Drag to zoom in, double-click to zoom out.</p>
          </Figures>
        </>
      )}
      {may("collector") && here.length > 0 && <Tops probes={here} at={name} />}
      {here.length > 0 && <Section title="Probes"><ProbeTable all={here.map((probe) => ({ ...probe, interfaces: probe.interfaces.filter((at) => at.interface === name) }))} /></Section>}
    </>
  );
}
