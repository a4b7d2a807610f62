// The choice of numbers that are drawn: a metric, a field of its value, and parts of its key.
import type { Document, Probe } from "../../api/types.ts";
import { choose, parameter } from "../../parts/route.ts";
import { type Column, columnsOf, keyLabelOf, metricAt, type Place, placeId, placesOf, placeTitle, rowsOf } from "../../data/rows.ts";

type Test = (document: Document, place: Place) => boolean;
const hasEntries: Test = (document, place) => metricAt(document, place)!.entries.length > 0;

/** The metrics of the newest document, and the chosen one. The default is one that fits the view and is not empty. */
export function usePlace(documents: Document[], fits: Test = () => true, shows: Test = hasEntries) {
  const [id] = parameter("metric");
  // The chosen field, keys and order belong to one metric, so another metric resets them.
  const setPlace = (metric: string) => choose({ metric, field: null, by: null, only: null, key: null, sort: null, scale: null });
  const newest = documents[documents.length - 1]!;
  const places = placesOf(newest);
  const fitting = places.filter((place) => fits(newest, place));
  const first = fitting.find((place) => shows(newest, place)) ?? fitting[0] ?? places[0];
  const place = places.find((place) => placeId(place) === id) ?? first;
  return { newest, places, place, setPlace };
}

export const placeOptions = (places: Place[]) => places.map((place) => [placeId(place), placeTitle(place)] as const);

/** The columns of a metric in the newest documents that have entries. */
export function columnsIn(documents: Document[], place: Place, probe?: Probe): Column[] {
  for (const document of [...documents].reverse().slice(0, 20)) {
    const metric = metricAt(document, place);
    if (metric && metric.entries.length > 0) return columnsOf(rowsOf(metric), metric.agg, keyLabelOf(probe, place));
  }
  return [];
}
