// Rows of the newest windows with an address, a port or another key.
import { useEffect, useMemo } from "preact/hooks";
import type { Probe } from "../api/types.ts";
import { bytes, inUnit, plural, text as shownText } from "../data/format.ts";
import { findIn, type Found, labelOfRow } from "../data/find.ts";
import { type Column, isNumber, placeId, placeTitle, type Row, unitName } from "../data/rows.ts";
import { may, probes } from "../live/changes.ts";
import { isAddress, named } from "../live/names.ts";
import { followNewest, type Standing, standings } from "../live/newest.ts";
import { Age } from "./overview/tops.tsx";
import { Empty, Section, Wide } from "../parts/basics.tsx";
import { link, linkWith } from "../parts/route.ts";

const MOST = 10;

function number(row: Row, column: Column, { place, rates }: Found): string {
  const value = row[column.id];
  if (value === undefined) return "";
  return isNumber(value) ? inUnit(Number(value), unitName(column, place.name), rates.has(column.id)) : shownText(value);
}

function Metrics({ probe, found, text }: { probe: Probe; found: Found; text: string }) {
  const { place, keys, numbers, rows, total } = found;
  const address = (view: string, more: [string, string][]) => linkWith(["probe", probe.name, view], [["metric", placeId(place)], ...more]);
  const title = (column: Column) => column.title.replace(/_total$/, "").replaceAll("_", " ");
  return (
    <Section title={placeTitle(place)} actions={<a href={address("table", [["filter", text]])}>{total > rows.length ? `all ${total} rows` : "table"}</a>}>
      {rows.length === 0 ? <p class="muted">Nothing was counted here in the newest window.</p> : <Wide label={`${probe.name} ${placeTitle(place)}`} stacked>
        <thead><tr><th scope="col">{keys.map((key) => key.title).join(" ")}</th>{numbers.map((column) => <th scope="col" class="number">{title(column)}</th>)}</tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              <th scope="row" class="key"><a title="Over time" href={address("chart", [["only", labelOfRow(row, keys)]])}>{labelOfRow(row, keys, true)}</a></th>
              {numbers.map((column) => <td class="number" data-label={title(column)}>{number(row, column, found)}</td>)}
            </tr>
          ))}
        </tbody>
      </Wide>}
    </Section>
  );
}

function InProbe({ probe, standing, text }: { probe: Probe; standing: Standing; text: string }) {
  const found = useMemo(() => findIn(probe, standing.windows, text, MOST), [standing, probe.config, text]);
  const table = linkWith(["probe", probe.name, "table"], [["filter", text]]);
  if (standing.large) return <article class="found"><h2><a href={link("probe", probe.name)}>{probe.name}</a></h2><p class="muted">Its windows have {bytes(standing.large)} each: <a href={table}>look in its table</a>.</p></article>;
  if (found.length === 0) return null;
  return <article class="found"><h2><a href={link("probe", probe.name)}>{probe.name}</a></h2><Age probe={probe} standing={standing} />{found.map((one) => <Metrics key={placeId(one.place)} probe={probe} found={one} text={text} />)}</article>;
}

export function Find({ text }: { text: string }) {
  useEffect(followNewest, []);
  if (!may("collector")) return <p class="note">Figures need the role collector.</p>;
  const running = [...probes.value.values()].filter((probe) => probe.windows.newest !== null);
  const there = running.flatMap((probe) => {
    const standing = standings.value.get(probe.name);
    return standing ? [{ probe, standing }] : [];
  });
  const hits = there.filter(({ probe, standing }) => standing.large || findIn(probe, standing.windows, text, 1).length > 0);
  const name = isAddress(text) ? named(text).slice(text.length + 1) : "";
  return (
    <>
      <div class="view-head"><h1>{text}</h1>{name && <p class="muted facts-line">{name}</p>}</div>
      <p class="muted">In the newest windows of {plural(there.length, "probe")}, counts per second. A row leads to its chart.</p>
      {hits.length === 0
        ? there.length < running.length ? <p class="empty" role="status">Loading…</p> : <Empty>No key of these windows is {text}. A whole address or port must be the same; “192.0.2.” finds all that begin so. Only what was counted in a window, or since the beginning, is there.</Empty>
        : hits.map(({ probe, standing }) => <InProbe key={probe.name} probe={probe} standing={standing} text={text} />)}
    </>
  );
}
