// Metrics as tables: the parts of keys and values are columns.
import type { Direction, Document, Entry, Metric, Probe, Joining, Value } from "../api/types.ts";
import { DIRECTIONS } from "../api/types.ts";

export interface Column {
  /** The path, such as `key.src` or `value.tcp.syn`. */
  id: string;
  title: string;
  isKey: boolean;
  isNumber: boolean;
}

export type Row = Record<string, Value>;

/** Arrays with more elements than this are shown in one cell. */
const PARTS = 16;

function flatten(path: string, value: Value, into: Row) {
  if (Array.isArray(value) && value.length <= PARTS && value.length > 0) {
    value.forEach((part, index) => flatten(`${path}[${index}]`, part, into));
  } else if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    for (const [name, part] of Object.entries(value)) flatten(`${path}.${name}`, part, into);
  } else {
    into[path] = value;
  }
}

export function rowOf(entry: Entry): Row {
  const row: Row = {};
  if (entry.key !== undefined) flatten("key", entry.key, row);
  flatten("value", entry.value, row);
  return row;
}

export const rowsOf = (metric: Metric): Row[] => metric.entries.map(rowOf);

export const isNumber = (value: Value | undefined): value is number | bigint =>
  typeof value === "number" || typeof value === "bigint";

/** The columns of rows, keys first. A column is numeric only if all its cells are numbers. `keyLabel` is the title of
 * a key without parts. */
export function columnsOf(rows: Row[], agg?: string, keyLabel?: string): Column[] {
  const found = new Map<string, Column>();
  for (const row of rows.slice(0, 200)) {
    for (const [id, value] of Object.entries(row)) {
      const column = found.get(id);
      if (column) column.isNumber &&= isNumber(value);
      else found.set(id, { id, title: (id === "key" && keyLabel) || titleOf(id, agg), isKey: id.startsWith("key"), isNumber: isNumber(value) });
    }
  }
  return [...found.values()].sort((a, b) => Number(b.isKey) - Number(a.isKey));
}

/** The inside of a sketch: bits that people can't read. */
const SKETCH = /^0x[0-9a-f]{33}/;

/** True for the only slot of the arrays of interfaces, which adds no information to their names. */
export const isSpare = ({ id }: Column, rows: Row[]) => id === "key.key" && rows.every((row) => row[id] === 0);

/** The columns without the insides of sketches and without slots that all rows share. */
export const readable = (columns: Column[], rows: Row[]): Column[] => columns.filter((column) => (column.isKey ? !isSpare(column, rows) : !SKETCH.test(String(rows[0]?.[column.id]))));

function titleOf(id: string, agg?: string): string {
  if (id === "key" || id === "value") return id;
  const title = id.replace(/^(key|value)\.?/, "");
  return !agg && /^\[\d+\]$/.test(title) ? `cpu ${title.slice(1, -1)}` : title;
}

/** The columns that people look at first, by name. */
const FIRST = [/(^|_)(packets|pkts|segments|frames)(_|$)/i, /(^|_)(bytes|octets)(_|$)/i, /(^|_)(count|total|connections|queries|events)(_|$)/i];

/** The column of numbers that is shown first: that of packets or bytes, else the first one that is not all zeros. */
export function mainColumn(columns: Column[], rows: Row[]): Column | undefined {
  const numbers = columns.filter((column) => column.isNumber && !column.isKey);
  for (const name of FIRST) {
    const found = numbers.find((column) => name.test(column.title));
    if (found) return found;
  }
  return numbers.find((column) => rows.some((row) => Number(row[column.id] ?? 0) !== 0)) ?? numbers[0];
}

/** A metric of a document by its place. */
export interface Place {
  direction: Direction;
  name: string;
}

/** The rule of a number, by the id of its column. Counts are added up, other numbers are not. */
export function ruleOf(probe: Probe, place: Place, id: string): Joining {
  const fields = probe.joins?.find(({ direction, metric }) => direction === place.direction && metric === place.name)?.fields;
  return fields?.[id.replace(/^value\.?/, "").replace(/\[\d+\]/g, "")] ?? "sum";
}

/** The configured name of a metric's key, which is also its label in Prometheus. */
export const keyLabelOf = (probe: Probe | undefined, place: Place): string | undefined => {
  const label = probe?.config[place.direction]?.metrics?.find((metric) => metric.name === place.name)?.key_label;
  return typeof label === "string" ? label : undefined;
};

/** The title of a metric. Its name may have the direction already. */
export const placeTitle = ({ direction, name }: Place) => (name.startsWith(`${direction}_`) ? name : `${direction} ${name}`);

export const placeId = (place: Place) => `${place.direction}/${place.name}`;

export function placesOf(document: Document | undefined): Place[] {
  if (!document) return [];
  return DIRECTIONS.flatMap((direction) => Object.keys(document[direction]).map((name) => ({ direction, name })));
}

export const metricAt = (document: Document, place: Place): Metric | undefined => document[place.direction][place.name];

/** The number of newest windows that tell whether a metric has entries: a short pause changes no choice. */
export const RECENT = 20;

/** The first metric that has entries in the newest windows. */
export const firstFull = (documents: Document[]): Place | undefined => placesOf(documents.at(-1)).find((place) => documents.slice(-RECENT).some((document) => metricAt(document, place)?.entries.length));

/** The name that tells the unit of a column: `bytes` of a struct, or the metric's own name. */
export const unitName = (column: Column, metric: string) => (column.title === "value" || column.title.startsWith("cpu ") ? metric : column.title);

/** True if the entries are slots `0..n` with one number each, as in histograms. */
export function isSlots(metric: Metric): boolean {
  return (
    /array$/.test(metric.type) &&
    metric.entries.length >= 8 &&
    metric.entries.every((entry, index) => entry.key === index && isNumber(entry.value))
  );
}

/** The interface that a key names. A field of the key's own may have the name already. */
export function interfaceIn({ key }: Pick<Entry, "key">): string | null {
  if (key === null || key === undefined || typeof key !== "object" || Array.isArray(key)) return null;
  const name = key._interface ?? key.interface;
  return typeof name === "string" ? name : null;
}

/** True if the rows of a document name their interfaces. */
export const namesInterfaces = (document: Document) => placesOf(document).some((place) => metricAt(document, place)!.entries.some((entry) => interfaceIn(entry) !== null));

/** A document without the rows of other interfaces. Rows that name none stay. */
export function atInterface(document: Document, name: string): Document {
  const own = (metrics: Record<string, Metric>) => Object.fromEntries(Object.entries(metrics).map(([id, metric]) => [id, { ...metric, entries: metric.entries.filter((entry) => (interfaceIn(entry) ?? name) === name) }]));
  return { ...document, ingress: own(document.ingress), egress: own(document.egress) };
}
