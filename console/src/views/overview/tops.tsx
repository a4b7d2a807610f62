// The largest keys of each probe in its newest window.
import { useEffect, useMemo } from "preact/hooks";
import type { Probe } from "../../api/types.ts";
import { bits, bytes, inUnit, until } from "../../data/format.ts";
import { slotWords } from "../../data/histogram.ts";
import { shortened } from "../../data/keys.ts";
import { endedBefore } from "../../data/newest.ts";
import { atInterface, namesInterfaces, placeId, placeTitle } from "../../data/rows.ts";
import { type Top, topOf } from "../../data/top.ts";
import { followNewest, type Standing, standings } from "../../live/newest.ts";
import { isAddress } from "../../live/names.ts";
import { daemonTime } from "../../live/traffic.ts";
import { Section } from "../../parts/basics.tsx";
import { link } from "../../parts/route.ts";

const MOST = 5;
/** The longest key that is shown whole: about two lines of a card. */
const LONGEST = 56;

function Largest({ top }: { top: Top }) {
  const most = Math.max(1e-9, ...top.lines.map((line) => line.value));
  const label = (text: string) => (top.scale ? slotWords(text, top.scale, top.place.name) : text);
  const texts = shortened(top.lines.map((line) => label(line.label)), LONGEST);
  const hasBytes = top.lines.some((line) => line.bytes !== undefined);
  return (
    <table>
      <thead><tr>
        <th scope="col" class="key"><span class="name" title={top.keys.join(" ")}>{top.keys.join(" ") || "key"}</span></th><th scope="col" class="number">{top.field.title === "value" ? "rate" : top.field.title.replace(/_total$/, "")}</th>
        {hasBytes && <th scope="col" class="number">bits</th>}<th scope="col"><span class="hidden">Share</span></th>
      </tr></thead>
      <tbody>
        {top.lines.map((line, index) => (
          <tr>
            <th scope="row" class="key"><span class="name" title={label(line.label)}><KeyWords text={texts[index]!} /></span></th>
            <td class="number">{inUnit(line.value, top.unit, top.perSecond)}</td>
            {hasBytes && <td class="number">{line.bytes === undefined ? "" : `${bits(line.bytes * 8)}/s`}</td>}
            <td class="bar-cell"><meter min={0} max={most} value={line.value} aria-label={`share of ${label(line.label)}`} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A key whose addresses link to the search for them. */
function KeyWords({ text }: { text: string }) {
  return <>{text.split(" ").map((word, index) => <>{index > 0 && " "}{isAddress(word) ? <a href={link("find", word)}>{word}</a> : word}</>)}</>;
}

const now = () => daemonTime.value || Date.now();
const endOf = (probe: Probe, { windows }: Standing) => endedBefore(probe, windows.at(-1)?.window, now());

/** The end of the newest window, if its numbers are not those of now. */
export function Age({ probe, standing }: { probe: Probe; standing: Standing }) {
  const end = endOf(probe, standing);
  return end === null ? null : <p class="warn-text age">{until(end, now())}</p>;
}

function Card({ probe, standing, at }: { probe: Probe; standing: Standing; at?: string }) {
  const windows = useMemo(() => (at === undefined ? standing.windows : standing.windows.map((one) => atInterface(one, at))), [standing, at]);
  const top = useMemo(() => (windows.length > 0 ? topOf(probe, windows, MOST) : null), [windows, probe.config]);
  const all = [...new Set(probe.interfaces.map((one) => one.interface))];
  const isJoint = useMemo(() => at !== undefined && !standing.windows.some(namesInterfaces), [standing, at]);
  const address = link("probe", probe.name, "chart");
  return (
    <article class="card">
      <h3><a href={top ? `${address}?metric=${encodeURIComponent(placeId(top.place))}` : address}>{probe.name}</a>{top && <span class="muted aside">{placeTitle(top.place)}</span>}</h3>
      <Age probe={probe} standing={standing} />
      {isJoint && all.length > 1 && <p class="muted age">all its interfaces together: {all.slice(0, 4).join(", ")}{all.length > 4 && ` and ${all.length - 4} more`}</p>}
      {top && top.lines.length > 0 ? <Largest top={top} />
        : standing.large ? <p class="muted">Its windows have {bytes(standing.large)} each: open it to see them.</p>
        : <p class="muted">Nothing was counted in the newest window.</p>}
    </article>
  );
}

/** If `at` is given, the rows that name another interface are left out. */
export function Tops({ probes, at }: { probes: Probe[]; at?: string }) {
  useEffect(followNewest, []);
  const shown = probes.flatMap((probe) => {
    const standing = standings.value.get(probe.name);
    return standing && probe.state === "running" ? [{ probe, standing }] : [];
  });
  if (shown.length === 0) return null;
  const isOld = ({ probe, standing }: (typeof shown)[number]) => Number(endOf(probe, standing) !== null);
  shown.sort((a, b) => isOld(a) - isOld(b));
  return (
    <Section title="Largest in the newest windows">
      <div class="cards">{shown.map(({ probe, standing }) => <Card key={probe.name} probe={probe} standing={standing} at={at} />)}</div>
    </Section>
  );
}
