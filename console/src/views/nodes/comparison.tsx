// A probe that runs on several nodes: a small chart of each node. All charts have the same scale
// and the same range of time.
import { useMemo } from "preact/hooks";
import { ask } from "../../api/client.ts";
import type { NodeChart, NodeDocument, NodeProblem, NodeStatus } from "../../api/nodes.ts";
import type { Document } from "../../api/types.ts";
import { bits, exact, inUnit, plural, unitOf } from "../../data/format.ts";
import { slotRange } from "../../data/histogram.ts";
import { hasNames } from "../../data/names.ts";
import { isShown, keysOf, mostOf, type Panel, panelsOf, stepFor, windowSeconds } from "../../data/nodes.ts";
import { LAST, lengthOf, rangeOf } from "../../data/range.ts";
import { type Column, mainColumn, metricAt, type Place, placeId, placesOf, rowsOf, unitName } from "../../data/rows.ts";
import { useLive } from "../../live/asked.ts";
import { isAddress, namedWords, nameless } from "../../live/names.ts";
import { Check, Empty, ProblemBox, Select, useAsk } from "../../parts/basics.tsx";
import { Chart } from "../../parts/chart.tsx";
import { chooseRange } from "../../parts/range.tsx";
import { choose, linkWith, parameter, route, toggle } from "../../parts/route.ts";
import { columnsIn, placeOptions, usePlace } from "../probe/choice.ts";
import { multiplied } from "../../data/series.ts";
import { quantity } from "../probe/lines.tsx";
import { Filter } from "./filter.tsx";

const TOPS = [["1", "1"], ["5", "5"], ["8", "8"], ["20", "20"]] as const;
/** The range that the view shows by default. */
const USUAL = "5m";
/** The most charts on the page. */
const MOST = 24;

/** The parameters of a request about nodes. */
const forNodes = (probe: string, nodes: NodeStatus[]): [string, string][] => [["probe", probe], ...nodes.map(({ name }) => ["node", name] as [string, string])];

/** The range of time in the address, as parameters of the request and in seconds. */
function timeOf(query: URLSearchParams): { parameters: [string, string][]; length: number; to: number | null } {
  const range = rangeOf(query);
  const length = range?.length ?? (range ? null : lengthOf(USUAL)!);
  if (length !== null) return { parameters: [["from", `-${length / 1000}s`]], length: length / 1000, to: null };
  const to = Math.min(range!.to, Date.now());
  const moment = (time: number) => new Date(time).toISOString();
  return { parameters: [["from", moment(range!.from)], ["to", moment(to)]], length: (to - range!.from) / 1000, to: to / 1000 };
}

function Time() {
  const { query } = route.value;
  const last = query.get("last");
  const isChosen = !last && rangeOf(query) !== null;
  const known = LAST.map(([id, text]) => [id === USUAL ? "" : id, text] as [string, string]);
  if (last && !LAST.some(([id]) => id === last)) known.push([last, `last ${last}`]);
  return (
    <>
      <Select label="Time" value={isChosen ? "chosen" : last === USUAL ? "" : (last ?? "")} options={isChosen ? [...known, ["chosen", "as chosen in a chart"]] : known} onChange={(id) => id !== "chosen" && choose({ last: id || null, from: null, to: null })} />
      {isChosen && <button type="button" onClick={() => chooseRange(null)}>Show newest</button>}
    </>
  );
}

interface CardProps {
  node: NodeStatus;
  problem?: NodeProblem;
  probe: string;
  children?: preact.ComponentChildren;
}

/** The panel of a node. Its title leads to the console of the node, with the same choices. */
function Card({ node, problem, probe, children }: CardProps) {
  const { name, server, labels } = node;
  const { filter: _, ...query } = Object.fromEntries(route.value.query);
  return (
    <article class="card" aria-label={name}>
      <h2>
        <span>{name}</span>
        <span class="muted aside">{Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`).join(" ")}</span>
        {/^https?:/.test(server) && <a class="whole" href={`${server}/${linkWith(["probe", probe], Object.entries(query))}`} rel="noreferrer" aria-label={`console of ${name}`}>console</a>}
      </h2>
      {problem ? <p class="reason">{problem.detail}</p> : children}
    </article>
  );
}

interface ChartsProps {
  probe: string;
  documents: Document[];
  /** The nodes with the probe, and those without an answer. */
  nodes: NodeStatus[];
  place: Place;
  columns: Column[];
  field: Column;
}

function Charts({ probe, documents, nodes, place, columns, field }: ChartsProps) {
  const [top] = parameter("top", "5");
  const [rate] = toggle("rate", true);
  const [totals] = toggle("sums", false);
  const [bitRates] = toggle("bits", true);
  const [names] = toggle("names", false);
  const [hosts] = toggle("addresses", false);
  const { parameters, length, to } = timeOf(route.value.query);
  const path = field.id.replace(/^value\.?/, "");
  const step = stepFor(length, windowSeconds(nodes, probe, documents));
  const asked = nodes.filter((node) => !node.problem);
  const query = new URLSearchParams([
    ...forNodes(probe, asked), ["metric", place.name], ["direction", place.direction], ["top", String(keysOf(Number(top)))],
    ...(path ? [["field", path]] : []), ...parameters, ...(step ? [["step", `${step}s`]] : []),
  ]);
  const [loading] = useLive<{ nodes: NodeChart[] }>(`/v1/nodes/series?${query}`, () => []);
  const all = loading.state === "there" ? loading.value.nodes : [];
  // The user may have chosen other numbers since the request: then the view does not draw the
  // answer.
  const charts = useMemo(() => all.filter(({ chart }) => !chart || (chart.metric === place.name && chart.direction === place.direction && (!path || chart.field === path))), [loading, place.name, place.direction, path]);
  const keys = columns.filter((column) => column.isKey).map((column) => column.id);
  const perSecond = rate && !totals && charts.every(({ chart }) => !chart || chart.shows === "increase");
  const metric = documents.map((document) => metricAt(document, place)).find(Boolean);
  const unit = metric?.histogram ? "" : unitName(field, place.name);
  const inBits = bitRates && perSecond && unitOf(unit).unit === "bytes";
  const panels = useMemo(() => {
    const found = panelsOf(charts, { by: keys, perSecond, names }, Number(top), totals);
    return new Map([...found].map(([name, panel]) => [name, { ...panel, lines: multiplied(panel.lines, inBits ? 8 : 1) }]));
  }, [charts, perSecond, names, top, totals, inBits]);
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  const label = (text: string) => {
    if (metric?.histogram && /^\d+$/.test(text)) return slotRange(Number(text), "log2", place.name);
    return hosts ? namedWords(text) : text;
  };
  const newest = Math.max(...charts.flatMap(({ chart }) => (chart?.times.length ? Date.parse(chart.times.at(-1)!) / 1000 : [])));
  const end = to ?? (newest > 0 ? newest : Date.now() / 1000);
  const common = { unit, perSecond, inBits, most: mostOf(panels.values()), range: { from: end - length, to: end }, of: `${place.direction} ${place.name} ${field.title}` };
  return (
    <>
      <p class="muted unit">{quantity(unit, metric?.histogram ? "count" : field.title, perSecond, inBits)}{totals && ", added up"}. All charts have one scale and one time. Drag to zoom in, double-click to zoom out.</p>
      <div class="cards small-charts">
        {nodes.map((node) => {
          const found = charts.find(({ name }) => name === node.name);
          const panel = panels.get(node.name);
          return (
            <Card key={node.name} node={node} probe={probe} problem={node.problem ?? found?.problem}>
              {panel && found?.chart ? <Small node={node.name} times={found.chart.times} panel={panel} label={label} common={common} /> : <p class="empty" role="status">Loading…</p>}
            </Card>
          );
        })}
      </div>
    </>
  );
}

interface SmallProps {
  node: string;
  times: string[];
  panel: Panel;
  label: (text: string) => string;
  common: { unit: string; perSecond: boolean; inBits: boolean; most: number; range: { from: number; to: number }; of: string };
}

function Small({ node, times, panel, label, common }: SmallProps) {
  const { unit, perSecond, inBits, most, range, of } = common;
  const drawn = useMemo(() => times.map((time) => Date.parse(time) / 1000), [times]);
  const lines = panel.lines.map((line) => ({ ...line, label: label(line.label) }));
  if (lines.length === 0) return <p class="muted">Nothing was counted in this time.</p>;
  return (
    <Chart
      label={`${of} on ${node}`} times={drawn} lines={lines} format={(value) => (inBits ? `${bits(value)}/s` : inUnit(value, unit, perSecond, false))} hasOthers={panel.hasOthers}
      binary={unitOf(unit).unit === "bytes" && !inBits} range={range} most={most} height={150}
      onZoom={(zoom) => chooseRange(zoom && { from: zoom.from * 1000, to: zoom.to * 1000 })}
    />
  );
}

function Choices({ documents, probe, nodes }: { documents: Document[]; probe: string; nodes: NodeStatus[] }) {
  const { places, place, setPlace } = usePlace(documents);
  const [fieldId, setField] = parameter("field");
  const [top, setTop] = parameter("top", "5");
  const [rate, setRate] = toggle("rate", true);
  const [bitRates, setBitRates] = toggle("bits", true);
  const [totals, setTotals] = toggle("sums", false);
  const [names, setNames] = toggle("names", false);
  const [hosts, setHosts] = toggle("addresses", false);
  const columns = useMemo(() => (place ? columnsIn(documents, place) : []), [documents, place && placeId(place)]);
  // A node adds up the items of an array, so they have no charts.
  const numbers = columns.filter((column) => column.isNumber && !column.isKey && !column.id.includes("["));
  const keys = columns.filter((column) => column.isKey);
  const rows = useMemo(() => documents.flatMap((document) => (place && metricAt(document, place) ? rowsOf(metricAt(document, place)!) : [])), [documents, place && placeId(place)]);
  const field = numbers.find((column) => column.id === fieldId) ?? mainColumn(numbers, rows);
  if (!place) return <Empty>This probe shows no metric.</Empty>;
  const hasAddresses = rows.some((row) => keys.some((key) => isAddress(String(row[key.id]).replace(/^::ffff:/, ""))));
  return (
    <>
      <div class="controls">
        <Select label="Metric" value={placeId(place)} options={placeOptions(places)} onChange={setPlace} />
        {numbers.length > 1 && <Select label="Field" value={field!.id} options={numbers.map((column) => [column.id, column.title] as const)} onChange={setField} />}
        {keys.length > 0 && <Select label="Top" value={top} options={TOPS} onChange={setTop} />}
        {keys.some((column) => hasNames(column.id)) && <Check label="names of services" value={names} onChange={setNames} />}
        {hasAddresses && <Check label="names of addresses" value={hosts} onChange={setHosts} />}
        {hosts && nameless.value && <p class="muted">The daemon finds no names: serve --names chooses some.</p>}
        <Check label="per second" value={rate} onChange={setRate} disabled={totals} />
        {rate && !totals && field && unitOf(unitName(field, place.name)).unit === "bytes" && <Check label="in bits" value={bitRates} onChange={setBitRates} />}
        <Check label="added up" value={totals} onChange={setTotals} />
      </div>
      {field
        ? <Charts probe={probe} documents={documents} nodes={nodes} place={place} columns={columns} field={field} />
        : <Empty>Nothing was counted yet, on no node.</Empty>}
    </>
  );
}

/** The documents of nodes. The last one has the most metrics, and offers the choices. */
const ordered = (nodes: NodeDocument[]) => nodes.flatMap(({ document }) => document ?? []).sort((a, b) => placesOf(a).length - placesOf(b).length);

export function Comparison({ probe, all }: { probe: string; all: NodeStatus[] }) {
  const [filter] = parameter("filter");
  const matching = all.filter((node) => isShown(node, filter));
  const own = (node: NodeStatus) => node.probes.find(({ name }) => name === probe);
  const nodes = matching.filter((node) => node.problem || own(node)).slice(0, MOST);
  const without = matching.filter((node) => !node.problem && !own(node));
  const left = matching.length - without.length - nodes.length;
  const having = nodes.filter(own);
  // Fields and keys change with the configuration, and there are none before the first window.
  const state = having.map((node) => `${node.name} ${own(node)!.revision} ${own(node)!.windows > 0}`).join("\n");
  const [loading] = useAsk<{ nodes: NodeDocument[] }>((signal) => ask(`/v1/nodes/windows?${new URLSearchParams(forNodes(probe, having))}`, { signal }), [state]);
  const documents = useMemo(() => (loading.state === "there" ? ordered(loading.value.nodes) : []), [loading]);
  const problems = loading.state === "there" ? new Map(loading.value.nodes.map(({ name, problem }) => [name, problem])) : null;
  const plain = (nodes: NodeStatus[]) => <div class="cards small-charts">{nodes.map((node) => <Card node={node} probe={probe} problem={node.problem ?? problems?.get(node.name)} />)}</div>;
  return (
    <>
      <div class="controls"><Filter shown={matching.length} all={all.length} /><Time /></div>
      {having.length === 0 ? <><Empty>No node {filter && "with this name or these labels "}has a probe {probe}.</Empty>{plain(nodes)}</>
        : loading.state === "failed" ? <ProblemBox problem={loading.problem} />
        : loading.state === "loading" ? <p class="empty" role="status">Loading…</p>
        : documents.length === 0 ? <><Empty>There is no window to compare yet.</Empty>{plain(nodes)}</>
        : <Choices documents={documents} probe={probe} nodes={nodes} />}
      {without.length > 0 && having.length > 0 && <p class="muted">Without this probe: {without.slice(0, MOST).map(({ name }) => name).join(", ")}{without.length > MOST && ` and ${exact(without.length - MOST)} more`}.</p>}
      {left > 0 && <p class="note">{plural(left, "further node")} found no room on this page. The filter chooses nodes by name or label.</p>}
    </>
  );
}
