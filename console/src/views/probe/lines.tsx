// Live charts over windows.
import { useEffect, useMemo } from "preact/hooks";
import type { Document, Joining, Probe, Value } from "../../api/types.ts";
import { labelOf, linesIn, pointsIn } from "../../data/aggregated.ts";
import { bits, clock, exact, inUnit, moment, ordinal, plural, unitOf } from "../../data/format.ts";
import { histogramOf, slotWords } from "../../data/histogram.ts";
import { hasNames } from "../../data/names.ts";
import { rangeId, rangeOf } from "../../data/range.ts";
import { mainColumn, placeId, rowsOf, ruleOf, unitName } from "../../data/rows.ts";
import { type Choice, linesOf, type Line, multiplied, seriesOf, withGaps } from "../../data/series.ts";
import { writeJson } from "../../api/json.ts";
import { percentileOf } from "../../data/numbers.ts";
import { Check, Empty, ProblemBox, Select, Wide } from "../../parts/basics.tsx";
import { useChart } from "../../live/chart.ts";
import { isAddress, namedWords, nameless } from "../../live/names.ts";
import { Chart } from "../../parts/chart.tsx";
import { chooseRange } from "../../parts/range.tsx";
import { choose, parameter, route, toggle } from "../../parts/route.ts";
import { isCumulative } from "../../data/top.ts";
import { columnsIn, placeOptions, usePlace } from "./choice.ts";
import { Changes, useHistory } from "./history.tsx";

const TOPS = [["1", "1"], ["5", "5"], ["8", "8"], ["20", "20"]] as const;

/** The unit of the axis. */
export function quantity(unitName: string, title: string, perSecond: boolean, inBits: boolean): string {
  const { unit } = unitOf(unitName);
  const word = unit === "bytes" ? (inBits ? "bits" : "bytes") : unit === "ns" ? "time" : title === "value" ? "count" : title.replace(/_total$/, "").replaceAll("_", " ");
  return perSecond ? `${word} per second` : word;
}

/** A key for the daemon's chart. */
const keyText = (key: Value) => (typeof key === "string" ? key : writeJson(key));

/** The key of a label, if a document has it; or else the label. */
function keyOf(documents: Document[], choice: Choice, only: string): string {
  const keys = documents.flatMap((document) => document[choice.place.direction][choice.place.name]?.entries.flatMap(({ key }) => (key === undefined ? [] : [key])) ?? []);
  return keyText(keys.find((key) => labelOf(key, choice) === only) ?? only);
}

/** Draws one line alone, or all again. The daemon needs the whole key. */
const showAlone = (only: string | null, key: Value | undefined = undefined) => choose({ only, key: key === undefined ? null : keyText(key) });

/** The mean, the 95th percentile and the largest number of a line. */
function Spread({ line, drawn, factor, points, format }: { line: Line; drawn: Line; factor: number; points: number; format: (value: number) => string }) {
  const values = drawn.values.filter((value) => value !== null);
  const largest = Math.max(...values);
  const high = percentileOf(values, 0.95);
  return <><td class="number">{points > 0 ? format((line.total * factor) / points) : ""}</td><td class="number">{high === null ? "" : format(high)}</td><td class="number">{largest > -Infinity ? format(largest) : ""}</td></>;
}

const RULES: Record<Joining, string> = { sum: "", max: "the largest", min: "the smallest", or: "all flags together", last: "the newest" };

interface LinesProps {
  probe: Probe;
  documents: Document[];
  /** The step between the windows of the range that are here. */
  stride: number;
  /** True if the daemon makes the chart. Then the page has one window, which only offers the fields and keys. */
  aggregated: boolean;
  /** True if the chart comes from the server that stores the samples of the daemon. */
  past: boolean;
  /** True while windows of the range are still fetched. */
  loading: boolean;
  /** Called if the daemon can't make the chart. */
  onUnfit: () => void;
}

export function Lines({ probe, documents, stride, aggregated, past, loading, onUnfit }: LinesProps) {
  const { places, place, setPlace } = usePlace(documents);
  const [fieldId, setField] = parameter("field");
  const [chosenBy] = parameter("by", "*");
  const [only] = parameter("only");
  const [onlyKey] = parameter("key");
  const [top, setTop] = parameter("top", "5");
  const [rate, setRate] = toggle("rate", true);
  const [bitRates, setBitRates] = toggle("bits", true);
  const [chosenTotals, setTotals] = toggle("sums", false);
  const [names] = toggle("names", false);
  const [hosts, setHosts] = toggle("addresses", false);
  const range = rangeOf(route.value.query);
  const columns = useMemo(() => (place ? columnsIn(documents, place, probe) : []), [documents, place && placeId(place)]);
  const numbers = columns.filter((column) => column.isNumber && !column.isKey);
  const keys = columns.filter((column) => column.isKey);
  const main = useMemo(() => mainColumn(columns, place ? rowsOf(documents[documents.length - 1]![place.direction][place.name]!) : []), [columns]);
  const field = numbers.find((column) => column.id === fieldId) ?? main;
  // Only counts have rates and differences. History shows only lines of whole keys, and only differences.
  const rule = place && field ? ruleOf(probe, place, field.id) : "sum";
  const isCount = rule === "sum";
  const [by, totals] = past ? ["*", false] : [chosenBy, chosenTotals && isCount];
  const chosen = keys.map((column) => column.id).filter((id) => by === "*" || by.split(" ").includes(id));
  const cumulative = place ? isCumulative(probe, place) : false;
  const choice: Choice | null = place && field
    ? { place, field: field.id, by: chosen, top: Number(top), cumulative: cumulative && !totals, standing: cumulative && totals, rule, perSecond: isCount && rate && !(cumulative && totals), stride, names, only }
    : null;
  // For an array in a value the daemon has only the sum, and for a cumulative sum it can't compute differences.
  const path = field?.id.replace(/^value\.?/, "");
  const fits = aggregated && choice !== null && by === "*" && !(cumulative && totals) && !path!.includes("[");
  useEffect(() => {
    if (aggregated && !past && choice && !fits) onUnfit();
  }, [aggregated, past, choice !== null, fits]);
  const { series, problem } = useChart(probe, fits ? { place: place!, field: path!, top: Number(top), key: only ? onlyKey || keyOf(documents, choice, only) : undefined, range, past } : null);
  const points = useMemo(() => (fits ? (series ? pointsIn(series) : []) : choice ? seriesOf(documents, choice, range) : []), [documents, JSON.stringify(choice), rangeId(route.value.query), fits, series]);
  const own = useMemo(() => (place ? histogramOf(probe, place, documents[documents.length - 1]![place.direction][place.name]) : null), [documents, place && placeId(place)]);
  const plain = useMemo(() => (choice ? (fits && series ? linesIn(series, choice) : linesOf(points, choice)) : []), [points, top, choice?.perSecond, choice?.names, only]);
  const lines = useMemo(() => (own ? plain.map((line) => ({ ...line, label: line.isOthers ? line.label : slotWords(line.label, own, place!.name) })) : plain), [plain, own]);
  // The name of a histogram tells the unit of its slots. Its counts have no unit.
  const unit = own ? "" : place && field ? unitName(field, place.name) : (place?.name ?? "");
  const isBytes = unitOf(unit).unit === "bytes";
  const inBits = isBytes && !!choice?.perSecond && bitRates;
  const drawn = useMemo(() => withGaps(points, multiplied(lines, inBits ? 8 : 1), stride), [points, lines, stride, inBits]);
  const history = useHistory(probe);
  const hasAddresses = lines.some((line) => line.label.split(" ").some(isAddress));
  const titled = hosts && hasAddresses ? drawn.lines.map((line) => ({ ...line, label: namedWords(line.label) })) : drawn.lines;
  if (!place) return <Empty>This probe shows no metric.</Empty>;

  const format = (value: number) => (inBits ? `${bits(value)}/s` : inUnit(value, unit, choice?.perSecond, false));
  const hasOthers = lines.some((line) => line.isOthers);
  const isItem = past && !!path?.includes("[");
  const first = points[0];
  const last = points[points.length - 1];
  const metric = documents[documents.length - 1]![place.direction][place.name];
  const setKey = (id: string, on: boolean) => {
    const next = keys.map((column) => column.id).filter((key) => (key === id ? on : chosen.includes(key)));
    choose({ by: next.length === keys.length ? null : next.join(" ") || "-", only: null, key: null });
  };
  const pick = (index: number) => showAlone(only ? null : plain[index]!.label, fits ? series?.series[index]?.key : undefined);
  const shown = range && { from: range.from / 1000, to: range.to < Infinity ? range.to / 1000 : (last?.time ?? Date.now() / 1000) };
  // The first point begins with its window.
  const [begin, end] = [shown?.from ?? (first ? first.time - first.seconds : 0), shown?.to ?? last?.time ?? 0];
  const changes = history.filter(({ time }) => Date.parse(time) / 1000 >= begin && Date.parse(time) / 1000 <= end);
  const most = Math.max(1, ...lines.map((line) => line.total));
  const seconds = points.reduce((sum, point) => sum + point.seconds, 0);
  const source = fits ? series?.source : undefined;
  // Sums since the beginning only grow, and numbers other than counts have no mean over windows.
  const hasMeans = isCount && !choice?.standing;
  const during = source ? `${plural(points.length, "point")} from ${source}` : plural(points.length, "window");
  return (
    <>
      <div class="controls">
        <Select label="Metric" value={placeId(place)} options={placeOptions(places)} onChange={setPlace} />
        {numbers.length > 1 && <Select label="Field" value={field!.id} options={numbers.map((column) => [column.id, column.title] as const)} onChange={setField} />}
        {keys.length > 0 && !only && <Select label="Top" value={top} options={TOPS} onChange={setTop} />}
        {only && <button type="button" onClick={() => showAlone(null)}>Only <span class="key">{hosts ? namedWords(only) : only}</span> · show all</button>}
        {keys.length > 0 && !past && !only && (
          <fieldset class="keys">
            <legend>A line for each</legend>
            {keys.map((column) => <Check label={column.title} value={chosen.includes(column.id)} onChange={(on) => setKey(column.id, on)} />)}
          </fieldset>
        )}
        {keys.some((column) => hasNames(column.id)) && <Check label="names of services" value={names} onChange={(on) => choose({ names: on ? "on" : null, only: null, key: null })} />}
        {hasAddresses && <Check label="names of addresses" value={hosts} onChange={setHosts} />}
        {hosts && nameless.value && <p class="muted">The daemon finds no names: serve --names chooses some.</p>}
        {isCount && <Check label="per second" value={rate} onChange={setRate} disabled={cumulative && totals} />}
        {isBytes && choice?.perSecond && <Check label="in bits" value={bitRates} onChange={setBitRates} />}
        {cumulative && isCount && !past && <Check label="since the beginning" value={totals} onChange={setTotals} />}
      </div>
      {metric?.help && <p class="muted help">{metric.help}</p>}
      {problem && <ProblemBox problem={problem} />}
      {(fits && !series && !problem) || (loading && points.length === 0) ? <p class="empty" role="status">Loading…</p> : !field || points.length === 0 ? (
        <Empty>{documents.length < 2 && cumulative ? "One more window is needed: this metric counts from the beginning, and a window is the difference." : isItem ? "There is no history of an item of an array. Choose another field." : range ? "Nothing was counted in this range of time." : "Nothing was counted in these windows."}</Empty>
      ) : (
        <>
          <p class="muted unit">{quantity(unit, own ? "count" : field.title, choice!.perSecond, inBits)}{!isCount && `, ${RULES[rule]} of each window`}{source && <strong class="source"> from {source}</strong>}</p>
          <Chart label={`${place.direction} ${place.name} ${field.title} over ${during}`} times={drawn.times} lines={titled} format={format} hasOthers={hasOthers} binary={isBytes && !inBits} range={shown} marks={changes.map(({ time }) => Date.parse(time) / 1000)} onPick={keys.length > 0 && chosen.length > 0 ? pick : undefined} onZoom={(zoom) => chooseRange(zoom && { from: zoom.from * 1000, to: zoom.to * 1000 })} />
          <Changes changes={changes} />
          <p class="muted">
            {source ? during : fits && series ? plural(series.windows, "window") : <>{during}, {exact(first!.seq)} to {exact(last!.seq)}</>}, {source ? `${moment(first!.time * 1000)} to ${moment(last!.time * 1000)}` : `${clock(first!.time * 1000)} to ${clock(last!.time * 1000)}`}. {loading && !fits ? <strong>More windows are on their way.</strong> : <>Gaps are {source ? "times of which the server has nothing" : "windows that are not here any more"}.</>}{stride > 1 && <strong> Every {ordinal(stride)} window of this range is drawn; a shorter range shows all.</strong>} Drag to zoom in, double-click to zoom out.
          </p>
          {keys.length > 0 && (
            <section>
              <h2>Largest over {source ? "this time" : "these windows"}</h2>
              <Wide label={`Largest over ${source ? "this time" : "these windows"}`}>
                <thead><tr><th scope="col">{chosen.length > 0 ? keys.filter((key) => chosen.includes(key.id)).map((key) => key.title).join(" ") : "all"}</th><th scope="col" class="number">{choice!.standing || isCount ? field.title : RULES[rule]}</th>{hasMeans && <><th scope="col" class="number">mean</th><th scope="col" class="number" title="The number that one point of twenty exceeds">p95</th><th scope="col" class="number">largest</th></>}<th scope="col" class="bar-cell"><span class="hidden">Share</span></th></tr></thead>
                <tbody>
                  {lines.map((line, index) => (
                    <tr><th scope="row" class="key">{line.isOthers || only ? line.label : <button type="button" class="link key" title="Show this line alone" onClick={() => pick(index)}>{hosts ? namedWords(line.label) : line.label}</button>}</th><td class="number">{inUnit(line.total, unit)}</td>{hasMeans && <Spread line={line} drawn={drawn.lines[index]!} factor={inBits ? 8 : 1} points={choice!.perSecond ? seconds : points.length} format={format} />}<td class="bar-cell"><meter min={0} max={most} value={line.total} aria-label={`share of ${line.label}`} /></td></tr>
                  ))}
                </tbody>
              </Wide>
            </section>
          )}
        </>
      )}
    </>
  );
}
