// How values spread: slots of arrays, or a field over the entries of a table; of one window, and over time.
import { useMemo, useState } from "preact/hooks";
import type { Document, Probe } from "../../api/types.ts";
import { count, plural } from "../../data/format.ts";
import { bucketsOf, difference, histogramOf, rangeOf, type Scale, slotLabel, slotRange } from "../../data/histogram.ts";
import { isSlots, mainColumn, metricAt, type Place, placeId, unitName } from "../../data/rows.ts";
import { Empty, Select } from "../../parts/basics.tsx";
import { Heatmap } from "../../parts/heatmap.tsx";
import { columnsIn, isCumulative, placeOptions, usePlace } from "./choice.ts";

/** Whether a slot has counted anything. */
const hasCounts = (document: Document, place: Place) => bucketsOf(document, place, null).size > 0;

export function Histograms({ probe, documents }: { probe: Probe; documents: Document[] }) {
  const { newest, places, place, setPlace } = usePlace(documents, (document, place) => isSlots(metricAt(document, place)!), hasCounts);
  const [fieldId, setField] = useState<string | null>(null);
  const [chosenScale, setScale] = useState<Scale | null>(null);
  const metric = place && metricAt(newest, place);
  const slots = metric ? isSlots(metric) : false;
  const numbers = place ? columnsIn(documents, place).filter((column) => column.isNumber && !column.isKey) : [];
  const field = slots ? null : (numbers.find((column) => column.id === fieldId) ?? mainColumn(numbers, []) ?? null);
  const own = useMemo(() => (place ? histogramOf(probe, place, metric) : null), [probe.config, place && placeId(place), metric?.map]);
  const scale: Scale = slots ? (chosenScale ?? own ?? "linear") : "log2";
  const all = useMemo(() => {
    if (!place) return [];
    return documents.map((document) => bucketsOf(document, place, field?.id ?? null));
  }, [documents, place && placeId(place), field?.id, slots]);
  // Slots of sums are those of a window once the window before is taken off.
  const isSum = slots && place !== undefined && isCumulative(probe, place) && all.length > 1;
  const windows = useMemo(() => (isSum ? all.slice(1).map((one, index) => difference(one, all[index])) : all), [all, isSum]);
  if (!place) return <Empty>This probe shows no metric.</Empty>;

  const range = rangeOf(windows);
  const name = field ? unitName(field, place.name) : place.name;
  const times = documents.slice(isSum ? 1 : 0).map((document) => (document.window ? Date.parse(document.window.end) : Date.now()) / 1000);
  const latest = [...windows].reverse().find((one) => one.size > 0) ?? new Map<number, number>();
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
      {!range ? <Empty>Nothing was counted in the windows that are here.</Empty> : (
        <>
          <h2>Newest window with a count ({count(total)})</h2>
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
          <h2>Over {plural(windows.length, "window")}</h2>
          <Heatmap label={`Heat map of ${place.direction} ${place.name} over ${windows.length} windows`} times={times} windows={windows} first={range.first} last={range.last} slotLabel={(slot) => slotLabel(slot, scale, name)} slotRange={(slot) => slotRange(slot, scale, name)} />
        </>
      )}
    </>
  );
}
