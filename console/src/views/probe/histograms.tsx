// The distribution of values, in one window and over time: slots of arrays, or a field over the entries of a table.
import { useMemo } from "preact/hooks";
import type { Document, Probe } from "../../api/types.ts";
import { pointsIn, slotsIn } from "../../data/aggregated.ts";
import { count, inUnit, plural, unitOf } from "../../data/format.ts";
import { bucketsOf, difference, firstHistogram, histogramOf, PERCENTILES, percentile, rangeOf, type Scale, slotLabel, slotRange } from "../../data/histogram.ts";
import { type Range, rangeId, rangeOf as timeRange } from "../../data/range.ts";
import { isSlots, mainColumn, metricAt, type Place, placeId, unitName } from "../../data/rows.ts";
import { useChart } from "../../live/chart.ts";
import { Empty, ProblemBox, Select } from "../../parts/basics.tsx";
import { Chart } from "../../parts/chart.tsx";
import { chooseRange } from "../../parts/range.tsx";
import { parameter, route } from "../../parts/route.ts";
import { Heatmap } from "../../parts/heatmap.tsx";
import { isCumulative } from "../../data/top.ts";
import { columnsIn, placeOptions, usePlace } from "./choice.ts";

/** The most slots of a histogram. */
const SLOTS = 64;

/** The counts of all windows together. */
function sum(windows: Map<number, number>[]): Map<number, number> {
  const all = new Map<number, number>();
  for (const slots of windows) {
    for (const [slot, value] of slots) all.set(slot, (all.get(slot) ?? 0) + value);
  }
  return all;
}

/** The slots of each window of a range. For sums, the previous window is subtracted. */
function spreads(documents: Document[], place: Place, field: string | null, isSum: boolean, range: Range | null) {
  const all = documents.map((document) => ({
    slots: bucketsOf(document, place, field),
    time: (document.window ? Date.parse(document.window.end) : Date.now()) / 1000,
  }));
  // If a window is missing or not yet fetched, a difference would cover several windows.
  const steps = documents.slice(1).map((document, index) => (document.window?.seq ?? 0) - (documents[index]!.window?.seq ?? 0));
  const isNext = (index: number) => steps[index]! <= steps[steps.length - 1]!;
  const own = isSum && all.length > 1 ? all.slice(1).flatMap((one, index) => (isNext(index) ? [{ ...one, slots: difference(one.slots, all[index]!.slots) }] : [])) : all;
  const inside = own.filter(({ time }) => !range || time * 1000 > range.from);
  return { windows: inside.map(({ slots }) => slots), times: inside.map(({ time }) => time) };
}

interface HistogramsProps {
  probe: Probe;
  /** The windows of the range. For `past`, only the newest one, which offers the metrics. */
  documents: Document[];
  /** True if the counts come from the server that stores the samples of the daemon. */
  past: boolean;
  /** True while windows are still fetched. */
  loading: boolean;
}

export function Histograms({ probe, documents: all, past, loading }: HistogramsProps) {
  const { newest, places, place, setPlace } = usePlace(all, (documents) => firstHistogram(probe, documents));
  const [fieldId, setField] = parameter("field");
  const [chosenScale, setScale] = parameter("scale") as [Scale | "", (scale: Scale) => void];
  const metric = place && metricAt(newest, place);
  const numbers = place ? columnsIn(all, place).filter((column) => column.isNumber && !column.isKey) : [];
  const own = useMemo(() => (place ? histogramOf(probe, place, metric) : null), [probe.config, place && placeId(place), metric]);
  const slots = own !== null || (metric ? isSlots(metric) : false);
  const field = slots ? null : (numbers.find((column) => column.id === fieldId) ?? mainColumn(numbers, []) ?? null);
  const scale: Scale = slots ? (chosenScale || own || "linear") : "log2";
  const id = rangeId(route.value.query);
  const { series, problem } = useChart(probe, past && place && slots ? { place, field: "", top: SLOTS, range: timeRange(route.value.query), past } : null);
  const { windows, times } = useMemo(() => {
    if (past) return { windows: series ? slotsIn(series) : [], times: series ? pointsIn(series).map((point) => point.time) : [] };
    return place ? spreads(all, place, field?.id ?? null, slots && isCumulative(probe, place), timeRange(route.value.query)) : { windows: [], times: [] };
  }, [all, place && placeId(place), field?.id, slots, id, past, series]);
  const lines = useMemo(() => PERCENTILES.map(([label, share]) => ({ label, total: 0, values: windows.map((slots) => percentile(slots, share, scale)) })), [windows, scale]);
  if (!place) return <Empty>This probe shows no metric.</Empty>;

  const range = rangeOf(windows);
  const name = field ? unitName(field, place.name) : place.name;
  const inWords = (value: number) => (scale === "linear" ? count(value) : inUnit(value, name));
  const time = timeRange(route.value.query);
  const chosen = time && { from: time.from / 1000, to: time.to < Infinity ? time.to / 1000 : (times[times.length - 1] ?? Date.now() / 1000) };
  const zoom = (to: { from: number; to: number } | null) => chooseRange(to && { from: to.from * 1000, to: to.to * 1000 });
  const latest = (past ? sum(windows) : [...windows].reverse().find((one) => one.size > 0)) ?? new Map<number, number>();
  const [column, title] = past ? ["point", "This time"] : ["window", "Newest window with a count"];
  const most = Math.max(1, ...latest.values());
  const rows = range ? Array.from({ length: range.last - range.first + 1 }, (_, index) => range.first + index) : [];
  const total = [...latest.values()].reduce((sum, value) => sum + value, 0);
  return (
    <>
      <div class="controls">
        <Select label="Metric" value={placeId(place)} options={placeOptions(places)} onChange={setPlace} />
        {!slots && numbers.length > 0 && <Select label="Entries by" value={field!.id} options={numbers.map((column) => [column.id, column.title] as const)} onChange={setField} />}
        {slots && <Select label="Slots are" value={scale} options={[["log2", "powers of two"], ["log2l", "powers of two, as BCC counts"], ["linear", "numbers"]] as const} onChange={setScale} />}
      </div>
      {metric?.help && <p class="muted help">{metric.help}</p>}
      {!slots && field && <p class="muted">How many entries have a value of “{field.title}” in each range.</p>}
      {problem && <ProblemBox problem={problem} />}
      {past && !slots ? <Empty>There is no history of how the entries of a table spread. Choose a histogram, or a time of which windows are retained.</Empty> : (past ? !series && !problem : !range && loading) ? <p class="empty" role="status">Loading…</p> : !range ? <Empty>{past ? "Nothing was counted in this range of time." : "Nothing was counted in these windows."}</Empty> : (
        <>
          <h2>{title}{series?.source && <strong class="source"> from {series.source}</strong>}</h2>
          <dl class="figures" aria-label="Percentiles">
            {PERCENTILES.map(([id, share]) => <div class="figure" key={id}><dt>{id}</dt><dd>{inWords(percentile(latest, share, scale) ?? 0)}</dd></div>)}
            <div class="figure"><dt>Count</dt><dd>{count(total)}</dd></div>
          </dl>
          <table class="histogram">
            <thead><tr><th scope="col">{scale === "linear" ? "Slot" : "Range"}</th><th scope="col" class="number">Count</th><th scope="col"><span class="hidden">Bar</span></th></tr></thead>
            <tbody>
              {rows.map((slot) => {
                const value = latest.get(slot) ?? 0;
                return (
                  <tr>
                    <th scope="row" class="number">{scale === "linear" ? slot : slotRange(slot, scale, name)}</th>
                    <td class="number">{count(value)}</td>
                    <td class="bar-cell"><div class="bar" style={{ width: `${(100 * value) / most}%` }} /></td>
                  </tr>
                );
              })}
            </tbody>
          </table>
          <h2>Over {plural(windows.length, column)}</h2>
          <Chart label={`Percentiles of ${place.direction} ${place.name}`} times={times} lines={lines} format={inWords} hasOthers={false} binary={scale !== "linear" && unitOf(name).unit === "bytes"} onZoom={zoom} range={chosen} />
          <p class="muted">A percentile is the end of its range: 95 % of the values do not exceed p95.</p>
          <Heatmap label={`Heat map of ${place.direction} ${place.name} over ${plural(windows.length, column)}`} each={column} times={times} windows={windows} first={range.first} last={range.last} slotLabel={(slot) => slotLabel(slot, scale, name)} slotRange={(slot) => slotRange(slot, scale, name)} />
        </>
      )}
    </>
  );
}
