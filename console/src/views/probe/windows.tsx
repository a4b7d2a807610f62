// The schedule of a probe's windows, and the retained windows.
import { useState } from "preact/hooks";
import { ask, asProblem, type Problem, probePath, send, withReason } from "../../api/client.ts";
import type { Config, Probe, WindowEntry, WindowSettings } from "../../api/types.ts";
import { bytes, duration, exact, moment } from "../../data/format.ts";
import { may, putProbe } from "../../live/changes.ts";
import { Check, Empty, ProblemBox, Reason, Section, useAsk } from "../../parts/basics.tsx";

export function WindowFields({ value, onChange }: { value: WindowSettings; onChange: (value: WindowSettings) => void }) {
  const set = (name: keyof WindowSettings, one: unknown) => {
    const next = { ...value, [name]: one } as Record<string, unknown>;
    if (one === "" || one === undefined || one === false) delete next[name];
    if (!next.interval) delete next.align;
    onChange(next as WindowSettings);
  };
  const number = (text: string) => (text.trim() === "" ? undefined : Number(text));
  return (
    <div class="fields">
      <label class="field"><span>Interval</span><input value={value.interval ?? ""} placeholder="only requests" onInput={(event) => set("interval", event.currentTarget.value.trim())} /></label>
      <Check label="at multiples of the wall clock" value={value.align ?? false} disabled={!value.interval} onChange={(on) => set("align", on)} />
      <label class="field"><span>Retain windows</span><input inputMode="numeric" value={value.retain ?? ""} placeholder="32" onInput={(event) => set("retain", number(event.currentTarget.value))} /></label>
      <label class="field"><span>Retain bytes</span><input inputMode="numeric" value={value.retain_bytes ?? ""} placeholder="268435456" onInput={(event) => set("retain_bytes", number(event.currentTarget.value))} /></label>
      <label class="field"><span>Collectors</span><input value={(value.collectors ?? []).join(" ")} placeholder="none" onChange={(event) => {
        const names = event.currentTarget.value.split(/[\s,]+/).filter(Boolean);
        set("collectors", names.length > 0 ? names : undefined);
      }} /></label>
    </div>
  );
}

function Settings({ probe }: { probe: Probe }) {
  const [value, setValue] = useState<WindowSettings>(probe.config.window ?? {});
  const [problem, setProblem] = useState<Problem | null>(null);
  const [saved, setSaved] = useState("");
  const [busy, setBusy] = useState(false);
  const [reason, setReason] = useState("");
  const save = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    setSaved("");
    try {
      // Only the probe's own status has the sources. Its tag reveals a change by somebody else in the meantime.
      const answer = await send(probePath(probe.name));
      const { config } = (await answer.json()) as { config: Config };
      const { window: _, ...rest } = config;
      const body = Object.keys(value).length > 0 ? { ...rest, window: value } : rest;
      const tag = answer.headers.get("etag");
      putProbe(await ask<Probe>(withReason(probePath(probe.name), reason), { method: "PUT", body, headers: tag ? { "If-Match": tag } : {} }));
      setSaved("Saved. Counting went on.");
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(false);
  };
  return (
    <form onSubmit={save}>
      <WindowFields value={value} onChange={setValue} />
      {problem && <ProblemBox problem={problem} />}
      <div class="actions"><Reason value={reason} onChange={setReason} /><button type="submit" class="primary" disabled={busy}>{busy ? "Saving…" : "Save"}</button><span role="status" class="good-text">{saved}</span></div>
    </form>
  );
}

function Retained({ probe }: { probe: Probe }) {
  const [loading] = useAsk((signal) => ask<{ windows: WindowEntry[] }>(`${probePath(probe.name)}/windows`, { signal }), [probe.name, probe.windows.newest, probe.windows.oldest]);
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  const windows = loading.value.windows.slice(-100).reverse();
  if (windows.length === 0) return <Empty>No window is retained.</Empty>;
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Retained windows">
      <table>
        <thead><tr><th scope="col" class="number">Window</th><th scope="col">Start</th><th scope="col">End</th><th scope="col" class="number">Length</th><th scope="col" class="number">Size</th></tr></thead>
        <tbody>
          {windows.map((window) => (
            <tr><th scope="row" class="number">{exact(window.seq)}</th><td>{moment(window.start)}</td><td>{moment(window.end)}</td>
              <td class="number">{duration((Date.parse(window.end) - Date.parse(window.start)) * 1e6)}</td><td class="number">{bytes(window.bytes)}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Windows({ probe }: { probe: Probe }) {
  const { windows, config } = probe;
  return (
    <>
      <dl class="figures">
        <div class="figure"><dt>Retained</dt><dd>{exact(windows.retained)} <span class="muted">{bytes(windows.bytes)}</span></dd></div>
        <div class="figure"><dt>Lost</dt><dd class={windows.lost > 0 ? "lost-number" : ""}>{exact(windows.lost)}</dd></div>
        <div class="figure"><dt>Damaged</dt><dd class={windows.damaged > 0 ? "lost-number" : ""}>{exact(windows.damaged)}</dd></div>
      </dl>
      <Section title="Settings">
        {may("operator") ? <Settings key={probe.revision} probe={probe} /> : (
          <dl class="facts"><dt>Interval</dt><dd>{config.window?.interval ?? "only requests close windows"}</dd><dt>Retain</dt><dd>{config.window?.retain ?? 32} windows</dd></dl>
        )}
      </Section>
      {may("collector") && <Section title={probe.windows.retained > 100 ? "Newest 100 retained windows" : "Retained windows"}><Retained probe={probe} /></Section>}
    </>
  );
}
