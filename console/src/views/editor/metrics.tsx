// The metrics of one direction, completed from the maps of its source.
import type { Direction, Finding, MetricConfig } from "../../api/types.ts";
import { isEvents, metricFor, type SourceMap } from "../../data/source.ts";
import { Check } from "../../parts/basics.tsx";

/** The rules for the values of CPUs. The build takes them from the API description. */
declare const AGGREGATIONS: string[];

/** The kind of a metric, as a choice that sets `snapshot` and `init`. */
const READINGS = [
  ["window", "each window", { snapshot: true, init: true }],
  ["sum", "since the beginning", { snapshot: true, init: false }],
  ["live", "live, as it is", { snapshot: false, init: false }],
  ["drain", "each window, while it changes", { snapshot: false, init: true }],
] as const;

const readingOf = (metric: MetricConfig) =>
  READINGS.find(([, , flags]) => flags.snapshot === (metric.snapshot ?? false) && flags.init === (metric.init ?? false))![0];

export function MetricsForm({ direction, metrics, maps, findings, onChange }: {
  direction: Direction;
  metrics: MetricConfig[];
  maps: SourceMap[];
  findings: Finding[];
  onChange: (metrics: MetricConfig[]) => void;
}) {
  const set = (index: number, more: Record<string, unknown>) =>
    onChange(metrics.map((metric, at) => {
      if (at !== index) return metric;
      const next: Record<string, unknown> = { ...metric, ...more };
      for (const [name, value] of Object.entries(more)) if (value === "" || value === undefined) delete next[name];
      return next as MetricConfig;
    }));
  const names = metrics.map((metric) => metric.name);
  const unused = maps.filter((map) => !metrics.some((metric) => metric.map === map.name));
  const add = (map: SourceMap) => metricFor(map, names) as MetricConfig;
  const list = `maps-${direction}`;
  return (
    <div class="metrics">
      <h2>Metrics of {direction}</h2>
      <datalist id={list}>{maps.map((map) => <option value={map.name}>{map.type}</option>)}</datalist>
      {metrics.length === 0 && <p class="muted">Without a metric nothing can be read.</p>}
      {metrics.map((metric, index) => {
        const map = maps.find((one) => one.name === metric.map);
        const field = `${direction}.metrics[${index}]`;
        const about = findings.filter((finding) => finding.field?.startsWith(field));
        const events = map ? isEvents(map.type) : metric.type !== undefined;
        return (
          <fieldset class="metric">
            <legend class="hidden">{`Metric ${metric.name || index + 1} of ${direction}`}</legend>
            <label class="field"><span>Name</span><input value={metric.name} spellcheck={false} onInput={(event) => set(index, { name: event.currentTarget.value.trim() || " " })} /></label>
            <label class="field"><span>Map{map && <span class="muted"> {map.type}</span>}</span><input value={metric.map} list={list} spellcheck={false} onInput={(event) => set(index, { map: event.currentTarget.value.trim() || " " })} /></label>
            {events ? (
              <label class="field"><span>Type of an event</span><input value={metric.type ?? ""} placeholder="struct event" spellcheck={false} onInput={(event) => set(index, { type: event.currentTarget.value })} /></label>
            ) : (
              <label class="field"><span>Counts</span>
                <select value={readingOf(metric)} onChange={(event) => set(index, { ...READINGS.find(([id]) => id === event.currentTarget.value)![2] })}>
                  {READINGS.map(([id, text]) => <option value={id} selected={readingOf(metric) === id}>{text}</option>)}
                </select>
              </label>
            )}
            {(map?.type.includes("percpu") || metric.agg) && (
              <label class="field"><span>CPUs</span>
                <select value={metric.agg ?? ""} onChange={(event) => set(index, { agg: event.currentTarget.value })}>
                  {["", ...AGGREGATIONS].map((id) => <option value={id} selected={(metric.agg ?? "") === id}>{id || "each"}</option>)}
                </select>
              </label>
            )}
            <label class="field wide"><span>Help</span><input value={metric.help ?? ""} onInput={(event) => set(index, { help: event.currentTarget.value })} /></label>
            <Check label="show" value={metric.export !== false} onChange={(on) => set(index, { export: on ? undefined : false })} />
            <button type="button" class="link" onClick={() => onChange(metrics.filter((_, at) => at !== index))} aria-label={`Remove metric ${metric.name}`}>Remove</button>
            {about.map((finding) => <p class="bad-text field-error">{finding.message}</p>)}
          </fieldset>
        );
      })}
      <div class="actions">
        {unused.map((map) => <button type="button" onClick={() => onChange([...metrics, add(map)])}>+ {map.name} <span class="muted">{map.type}</span></button>)}
        {unused.length > 1 && <button type="button" onClick={() => onChange(unused.reduce((all, map) => [...all, metricFor(map, all.map((one) => one.name)) as MetricConfig], metrics))}>Add all maps</button>}
        <button type="button" onClick={() => onChange([...metrics, { name: " ", map: " ", snapshot: true, init: true }])}>+ another</button>
      </div>
      {unused.length > 0 && <p class="muted">The source defines {unused.length === 1 ? "a map that no metric reads" : `${unused.length} maps that no metric reads`}.</p>}
    </div>
  );
}
