// The largest keys of each probe in its newest window.
import { useEffect, useMemo } from "preact/hooks";
import type { Probe } from "../../api/types.ts";
import { bits, bytes, inUnit } from "../../data/format.ts";
import { slotRange } from "../../data/histogram.ts";
import { placeId, placeTitle } from "../../data/rows.ts";
import { type Top, topOf } from "../../data/top.ts";
import { followNewest, type Standing, standings } from "../../live/newest.ts";
import { isAddress } from "../../live/names.ts";
import { Section } from "../../parts/basics.tsx";
import { link } from "../../parts/route.ts";

const MOST = 5;

function Largest({ top }: { top: Top }) {
  const most = Math.max(1e-9, ...top.lines.map((line) => line.value));
  const label = (text: string) => (top.scale && /^\d+$/.test(text) ? slotRange(Number(text), top.scale, top.place.name) : text);
  const hasBytes = top.lines.some((line) => line.bytes !== undefined);
  return (
    <table>
      <thead><tr>
        <th scope="col" class="key"><span class="name" title={top.keys.join(" ")}>{top.keys.join(" ") || "key"}</span></th><th scope="col" class="number">{top.field.title === "value" ? "rate" : top.field.title.replace(/_total$/, "")}</th>
        {hasBytes && <th scope="col" class="number">bits</th>}<th scope="col"><span class="hidden">Share</span></th>
      </tr></thead>
      <tbody>
        {top.lines.map((line) => (
          <tr>
            <th scope="row" class="key"><span class="name" title={label(line.label)}><KeyWords text={label(line.label)} /></span></th>
            <td class="number">{inUnit(line.value, top.unit, top.perSecond)}</td>
            {hasBytes && <td class="number">{line.bytes === undefined ? "" : `${bits(line.bytes * 8)}/s`}</td>}
            <td class="bar-cell"><meter min={0} max={most} value={line.value} aria-label={`share of ${label(line.label)}`} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A key; its addresses lead to all that is known of them. */
function KeyWords({ text }: { text: string }) {
  return <>{text.split(" ").map((word, index) => <>{index > 0 && " "}{isAddress(word) ? <a href={link("find", word)}>{word}</a> : word}</>)}</>;
}

function Card({ probe, standing }: { probe: Probe; standing: Standing }) {
  const top = useMemo(() => (standing.windows.length > 0 ? topOf(probe, standing.windows, MOST) : null), [standing, probe.config]);
  const address = link("probe", probe.name, "chart");
  return (
    <article class="card">
      <h3><a href={top ? `${address}?metric=${encodeURIComponent(placeId(top.place))}` : address}>{probe.name}</a>{top && <span class="muted aside">{placeTitle(top.place)}</span>}</h3>
      {top && top.lines.length > 0 ? <Largest top={top} />
        : standing.large ? <p class="muted">Its windows have {bytes(standing.large)} each: open it to see them.</p>
        : <p class="muted">Nothing was counted in the newest window.</p>}
    </article>
  );
}

export function Tops({ probes }: { probes: Probe[] }) {
  useEffect(followNewest, []);
  const shown = probes.flatMap((probe) => {
    const standing = standings.value.get(probe.name);
    return standing && probe.state === "running" ? [{ probe, standing }] : [];
  });
  if (shown.length === 0) return null;
  return (
    <Section title="Largest in the newest windows">
      <div class="cards">{shown.map(({ probe, standing }) => <Card key={probe.name} probe={probe} standing={standing} />)}</div>
    </Section>
  );
}
