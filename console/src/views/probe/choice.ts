// The choice of numbers that are drawn: a metric, a field of its value, and parts of its key.
import type { Document, Probe } from "../../api/types.ts";
import { choose, parameter } from "../../parts/route.ts";
import { type Column, columnsOf, firstFull, keyLabelOf, metricAt, type Place, placeId, placesOf, placeTitle, RECENT, rowsOf } from "../../data/rows.ts";


/** The metrics of the newest document, and the chosen one. The default is what `first` finds: a metric that is not empty in the newest windows. */
export function usePlace(documents: Document[], first: (documents: Document[]) => Place | undefined = firstFull) {
  const [id] = parameter("metric");
  // The chosen field, keys and order belong to one metric, so another metric resets them.
  const setPlace = (metric: string) => choose({ metric, field: null, by: null, only: null, key: null, sort: null, scale: null });
  const newest = documents[documents.length - 1]!;
  const places = placesOf(newest);
  const place = places.find((place) => placeId(place) === id) ?? first(documents) ?? places[0];
  return { newest, places, place, setPlace };
}

export const placeOptions = (places: Place[]) => places.map((place) => [placeId(place), placeTitle(place)] as const);

/** The columns of a metric in the newest documents that have entries. */
export function columnsIn(documents: Document[], place: Place, probe?: Probe): Column[] {
  for (const document of [...documents].reverse().slice(0, RECENT)) {
    const metric = metricAt(document, place);
    if (metric && metric.entries.length > 0) return columnsOf(rowsOf(metric), metric.agg, keyLabelOf(probe, place));
  }
  return [];
}
