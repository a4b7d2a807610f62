// The entries of a metric: sorted, filtered, in units or exactly.
import { useMemo, useState } from "preact/hooks";
import type { Metric } from "../api/types.ts";
import { address, exact, inUnit, plural, text } from "../data/format.ts";
import { hasNames, numberText } from "../data/names.ts";
import { compare, filterOf } from "../data/filter.ts";
import { type Column, columnsOf, isNumber, mainColumn, readable, type Row, rowsOf, unitName } from "../data/rows.ts";
import { type Scale, slotRange, trimmed } from "../data/histogram.ts";
import { isAddress, named, nameless } from "../live/names.ts";
import { Check, Empty, Select } from "./basics.tsx";
import { link, parameter, toggle } from "./route.ts";

const PAGE = 100;

export type Rendering = "units" | "exact" | "hex" | "rate";

function cell(row: Row, column: Column, metric: string, rendering: Rendering, seconds: number, scale: Scale | null, names: boolean, hosts: boolean): string {
  const value = row[column.id];
  if (value === undefined) return "";
  // The name of a histogram tells the unit of its slots. Its counts have no unit.
  if (scale && column.isKey && typeof value === "number" && rendering !== "exact" && rendering !== "hex") return slotRange(value, scale, metric);
  if (scale && !column.isKey) metric = "";
  if (hosts && column.isKey && typeof value === "string") return named(address(value));
  if (!isNumber(value)) return rendering === "exact" && typeof value === "string" ? value : text(value);
  if (names && hasNames(column.id) && rendering !== "hex" && rendering !== "rate") return numberText(column.id, value);
  if (column.isKey && rendering !== "hex") return String(value);
  switch (rendering) {
    case "exact": return exact(value);
    case "hex": return Number.isInteger(Number(value)) ? `0x${BigInt(value).toString(16)}` : String(value);
    case "rate": return inUnit(Number(value) / seconds, unitName(column, metric), true);
    default: return inUnit(Number(value), unitName(column, metric));
  }
}

/** Tells from the first rows whether a column has addresses. */
const hasAddresses = (rows: Row[], column: Column) => rows.slice(0, 20).some((row) => typeof row[column.id] === "string" && isAddress(address(String(row[column.id]))));

interface TableProps {
  name: string;
  metric: Metric;
  seconds?: number;
  /** Tells whether a column is a count, which has a rate. */
  isCount?: (column: Column) => boolean;
  /** The meaning of the slots, for a histogram. */
  scale?: Scale | null;
  /** The title of a key without parts. */
  keyLabel?: string;
  /** True if addresses link to the search for them. */
  hasLinks?: boolean;
}

export function MetricTable({ name, metric, seconds, isCount = () => true, scale = metric.histogram ? "log2" : null, keyLabel, hasLinks = false }: TableProps) {
  const rows = useMemo(() => rowsOf(scale ? trimmed(metric) : metric), [metric, scale]);
  const [filter, setFilter] = parameter("filter");
  const [sort, setSort] = parameter("sort");
  const [rendering, setRendering] = parameter("numbers", "units") as [Rendering, (value: Rendering) => void];
  const isRaw = rendering === "exact" || rendering === "hex";
  const all = useMemo(() => columnsOf(rows, metric.agg, keyLabel), [rows, keyLabel]);
  const columns = isRaw ? all : readable(all, rows);
  const [names, setNames] = toggle("names", false);
  const [hosts, setHosts] = toggle("addresses", false);
  const [limit, setLimit] = useState(PAGE);
  const first = useMemo(() => mainColumn(columns, rows), [columns]);
  const slots = /array$/.test(metric.type);
  // The address has the name of the sorted column, with a minus before it if the largest comes first.
  const chosen = sort && columns.find((column) => column.id === sort.replace(/^-/, "")) ? { id: sort.replace(/^-/, ""), down: sort.startsWith("-") } : null;
  const order = chosen ?? (first && !slots ? { id: first.id, down: true } : null);
  const found = useMemo(() => rows.filter(filterOf(filter, columns)), [rows, filter]);
  const sorted = useMemo(() => {
    if (!order) return found;
    const sign = order.down ? -1 : 1;
    return [...found].sort((a, b) => sign * compare(a[order.id], b[order.id]));
  }, [found, order?.id, order?.down]);
  const shown = (row: Row, column: Column) => cell(row, column, name, rendering === "rate" && !isCount(column) ? "units" : rendering, seconds ?? 1, scale, names, hosts);
  const finds = (row: Row, { id, isKey }: Column) => hasLinks && isKey && typeof row[id] === "string" && isAddress(address(row[id]));
  // An array with a single slot has no keys to compare; its numbers are below each other, with their names.
  const isOne = slots && rows.length === 1 && (rows[0]!.key ?? rows[0]!["key.key"]) === 0 && columns.length > 3;
  const renderings: [Rendering, string][] = [["units", "units"], ["exact", "exact"], ["hex", "hex"]];
  if (seconds) renderings.push(["rate", "per second"]);
  const click = (column: Column) => setSort(`${(order?.id === column.id ? !order.down : column.isNumber) ? "-" : ""}${column.id}`);
  // A sum also has entries of earlier windows that are no longer in the map.
  const fill = metric.max_entries && rows.length <= (metric.entries_used ?? 0)
    ? `${plural(metric.entries_used ?? 0, "entry").replace("entrys", "entries")} of ${exact(metric.max_entries)}`
    : `${plural(rows.length, "entry").replace("entrys", "entries")}`;

  return (
    <div class="table-view">
      <div class="controls">
        <label class="field grow">
          <span>Filter</span>
          <input type="search" value={filter} placeholder="10.0.0. or packets>100" onInput={(event) => setFilter(event.currentTarget.value, true)} />
        </label>
        <Select label="Numbers" value={rendering} options={renderings} onChange={setRendering} />
        {columns.some((column) => hasNames(column.id)) && <Check label="names of services" value={names} onChange={setNames} />}
        {columns.some((column) => column.isKey && hasAddresses(rows, column)) && <Check label="names of addresses" value={hosts} onChange={setHosts} />}
        {hosts && nameless.value && <p class="muted">The daemon finds no names: serve --names chooses some.</p>}
        <p class="muted summary" role="status">
          {filter ? `${exact(found.length)} of ${plural(rows.length, "row")}` : fill}
          {metric.full && <strong class="warn-text"> full: what found no room is missing</strong>}
          {!!metric.completeness?.failed_inserts && <strong class="warn-text"> {exact(metric.completeness.failed_inserts)} insertions found no room</strong>}
        </p>
      </div>
      {rows.length === 0 ? <Empty>No entries: nothing was counted here.</Empty> : isOne ? (
        <div class="table-scroll" tabIndex={0} role="region" aria-label={`Entries of ${name}`}>
          <table class="upright">
            <caption class="hidden">{name}: {metric.help}</caption>
            <tbody>
              {sorted.flatMap((row) => columns.filter((column) => column.id !== "key").map((column) => <tr><th scope="row">{column.title}</th><td class={column.isNumber ? "number" : ""}>{shown(row, column)}</td></tr>))}
            </tbody>
          </table>
        </div>
      ) : (
        <div class="table-scroll" tabIndex={0} role="region" aria-label={`Entries of ${name}`}>
          <table>
            <caption class="hidden">{name}: {metric.help}</caption>
            <thead>
              <tr>
                {columns.map((column) => (
                  <th scope="col" class={column.isNumber ? "number" : ""} aria-sort={order?.id === column.id ? (order.down ? "descending" : "ascending") : "none"}>
                    <button type="button" onClick={() => click(column)}>
                      {column.title}
                      <span class="sort" aria-hidden="true">{order?.id === column.id ? (order.down ? "▾" : "▴") : ""}</span>
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {sorted.slice(0, limit).map((row) => (
                <tr>
                  {columns.map((column) => (
                    <td class={`${column.isNumber ? "number" : ""} ${column.isKey ? "key" : ""}`}>{finds(row, column) ? <a class="quiet" href={link("find", address(String(row[column.id])))}>{shown(row, column)}</a> : shown(row, column)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {sorted.length > limit && (
        <button type="button" onClick={() => setLimit(limit * 4)}>Show more ({exact(sorted.length - limit)} are left)</button>
      )}
    </div>
  );
}
