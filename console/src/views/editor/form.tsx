// The settings of a probe besides its source: name, interfaces, hooks, windows, metrics, and everything else as JSON.
import { useEffect, useState } from "preact/hooks";
import type { Config, Direction, DirectionConfig, Finding } from "../../api/types.ts";
import { DIRECTIONS } from "../../api/types.ts";
import type { SourceMap } from "../../data/source.ts";
import { count } from "../../data/format.ts";
import { interfaces } from "../../live/traffic.ts";
import { Check, Select } from "../../parts/basics.tsx";
import { WindowFields } from "../probe/windows.tsx";
import { MetricsForm } from "./metrics.tsx";

export interface FormProps {
  config: Config;
  name: string;
  exists: boolean;
  maps: Record<Direction, SourceMap[]>;
  findings: Finding[];
  onName: (name: string) => void;
  onChange: (config: Config) => void;
  onDirections: (direction: Direction) => void;
}

const interfacesOf = (config: Config) => config.interfaces ?? (config.interface ? [config.interface] : []);

/** The daemon's finding about a field. */
export function FieldErrors({ findings, field }: { findings: Finding[]; field: string }) {
  const found = findings.filter((finding) => finding.stage === "config" && (finding.field === field || finding.field?.startsWith(`${field}[`)));
  return <>{found.map((finding) => <span class="bad-text field-error">{finding.message}</span>)}</>;
}

function Interfaces({ config, findings, onChange }: Pick<FormProps, "config" | "findings" | "onChange">) {
  const chosen = interfacesOf(config);
  const [text, setText] = useState(chosen.join(" "));
  const set = (value: string) => {
    setText(value);
    const { interface: _, ...rest } = config;
    onChange({ ...rest, interfaces: value.split(/[\s,]+/).filter(Boolean) });
  };
  const toggle = (name: string) => set((chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name]).join(" "));
  return (
    <div class="interfaces">
      <label class="field">
        <span>Interfaces</span>
        <input value={text} placeholder="eth0, or veth* for all that match" spellcheck={false} onInput={(event) => set(event.currentTarget.value)} />
        <FieldErrors findings={findings} field="interface" /><FieldErrors findings={findings} field="interfaces" />
      </label>
      {!config.netns && interfaces.value.length > 0 && (
        <div class="checks" role="group" aria-label="Interfaces of this host">
          {interfaces.value.slice(0, 12).map((one) => (
            <button type="button" class="chip" aria-pressed={chosen.includes(one.name)} onClick={() => toggle(one.name)}>
              {one.name} {one.packets !== null && <span class="muted">{count(one.packets)}/s</span>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

function DirectionForm({ direction, value, maps, findings, onChange }: {
  direction: Direction;
  value: DirectionConfig;
  maps: SourceMap[];
  findings: Finding[];
  onChange: (value: DirectionConfig) => void;
}) {
  const set = (name: string, one: unknown) => onChange({ ...value, [name]: one });
  const hook = value.hook ?? (direction === "ingress" ? "xdp" : "tc");
  const setHook = (hook: string) => {
    const { mode, position, ...rest } = value;
    onChange({ ...rest, hook, ...(hook === "xdp" ? mode !== undefined && { mode } : position !== undefined && { position }) });
  };
  return (
    <fieldset>
      <legend>{direction === "ingress" ? "Ingress: what comes in" : "Egress: what goes out"}</legend>
      <div class="fields">
        {direction === "ingress" && <Select label="Hook" value={hook} options={[["xdp", "xdp"], ["tc", "tc"]] as const} onChange={setHook} />}
        {hook === "xdp" && <Select label="Mode" value={value.mode ?? "auto"} options={[["auto", "auto"], ["native", "native"], ["generic", "generic"]] as const} onChange={(mode) => set("mode", mode)} />}
        <Select label="Verdict" value={value.verdict ?? "observe"} options={[["observe", "observe"], ["enforce", "enforce"]] as const} onChange={(verdict) => set("verdict", verdict)} />
      </div>
      <MetricsForm direction={direction} metrics={value.metrics ?? []} maps={maps} findings={findings} onChange={(metrics) => set("metrics", metrics)} />
    </fieldset>
  );
}

/** All fields without the sources. */
function Json({ config, onChange }: Pick<FormProps, "config" | "onChange">) {
  const write = () => JSON.stringify(config, (key, value) => (key === "source" || key === "files" || key === "object" ? undefined : value), 2);
  const [text, setText] = useState(write);
  const [error, setError] = useState("");
  const [editing, setEditing] = useState(false);
  useEffect(() => {
    if (!editing) setText(write());
  }, [config, editing]);
  const take = (value: string) => {
    setText(value);
    try {
      const next = JSON.parse(value) as Config;
      for (const direction of DIRECTIONS) {
        const old = config[direction];
        if (next[direction] && old) Object.assign(next[direction], old.source !== undefined && { source: old.source }, old.files !== undefined && { files: old.files }, old.object !== undefined && { object: old.object });
      }
      setError("");
      onChange(next);
    } catch (problem) {
      setError((problem as Error).message);
    }
  };
  return (
    <details class="json">
      <summary>All fields as JSON</summary>
      <p class="muted">Everything but the sources and their files; labels, leases, samples, defines and more are set here.</p>
      <textarea aria-label="Configuration as JSON" rows={16} spellcheck={false} value={text} onFocus={() => setEditing(true)} onBlur={() => setEditing(false)} onInput={(event) => take(event.currentTarget.value)} />
      {error && <p class="bad-text" role="alert">{error}</p>}
    </details>
  );
}

export function Form({ config, name, exists, maps, findings, onName, onChange, onDirections }: FormProps) {
  const toggle = (direction: Direction, on: boolean) => {
    const next = { ...config };
    if (on) {
      const other = config[direction === "ingress" ? "egress" : "ingress"];
      next[direction] = { source: other?.source ?? "", metrics: structuredClone(other?.metrics ?? []), ...(direction === "egress" && { hook: "tc" }) };
      onDirections(direction);
    } else {
      delete next[direction];
    }
    onChange(next);
  };
  const directions = DIRECTIONS.filter((direction) => config[direction]).length;
  return (
    <form class="editor-form" onSubmit={(event) => event.preventDefault()} aria-label="Settings of the probe">
      <div class="fields">
        <label class="field"><span>Name</span><input value={name} readOnly={exists} spellcheck={false} onInput={(event) => onName(event.currentTarget.value.trim())} /><FieldErrors findings={findings} field="name" /></label>
      </div>
      <Interfaces config={config} findings={findings} onChange={onChange} />
      <div class="checks">
        {DIRECTIONS.map((direction) => <Check label={direction} value={!!config[direction]} disabled={!!config[direction] && directions === 1} onChange={(on) => toggle(direction, on)} />)}
        <Check label="each row names its interface" value={config.per_interface === true} onChange={(on) => onChange({ ...config, per_interface: on })} />
        <Check label="wait for interfaces that do not exist yet" value={config.wait_for_interface === true} onChange={(on) => onChange({ ...config, wait_for_interface: on })} />
      </div>
      {DIRECTIONS.filter((direction) => config[direction]).map((direction) => (
        <DirectionForm key={direction} direction={direction} value={config[direction]!} maps={maps[direction]} findings={findings} onChange={(value) => onChange({ ...config, [direction]: value })} />
      ))}
      <fieldset>
        <legend>Windows</legend>
        <WindowFields value={config.window ?? {}} onChange={(window) => {
          const { window: _, ...rest } = config;
          onChange(Object.keys(window).length > 0 ? { ...rest, window } : rest);
        }} />
        {["window.interval", "window.align", "window.retain", "window.retain_bytes", "window.collectors"].map((field) => <FieldErrors findings={findings} field={field} />)}
      </fieldset>
      <Json config={config} onChange={onChange} />
    </form>
  );
}
