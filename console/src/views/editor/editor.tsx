// The editor of a probe: its source, the other settings, and the daemon's findings about both.
import { useEffect, useMemo, useState } from "preact/hooks";
import { ask, asProblem, Problem, probePath, send, withReason } from "../../api/client.ts";
import { parseJson } from "../../api/json.ts";
import type { Config, Direction, Finding, Probe, Report, Revision } from "../../api/types.ts";
import { DIRECTIONS } from "../../api/types.ts";
import { bytes } from "../../data/format.ts";
import { mapsOf } from "../../data/source.ts";
import { may, putProbe } from "../../live/changes.ts";
import { Check, Panel, ProblemBox, Reason, Tabs, useAsk, Warnings } from "../../parts/basics.tsx";
import { Code } from "../../parts/code.tsx";
import { link } from "../../parts/route.ts";
import { Costs } from "../probe/attachment.tsx";
import { Form } from "./form.tsx";
import { Templates } from "./templates.tsx";
import { draft, type Draft } from "./draft.ts";
import { FileTabs, SOURCE, fileOf, withFile } from "./files.tsx";

export function Editor({ name, template, revision }: { name?: string; template?: string; revision?: string | null }) {
  if (!may("operator")) return <><h1>{name ?? "New probe"}</h1><p class="note">Sources are seen and pushed by the role operator; this credential may not.</p></>;
  if (name) return <Existing name={name} revision={revision ?? null} />;
  if (template) return <Write start={draft(template)} />;
  return <Templates />;
}

function Existing({ name, revision }: { name: string; revision: string | null }) {
  const [loading] = useAsk(async (signal): Promise<Draft> => {
    const answer = await send(probePath(name), { signal });
    const probe = parseJson(await answer.text()) as Probe;
    let config = probe.config;
    if (revision) {
      const { revisions } = await ask<{ revisions: Revision[] }>(`${probePath(name)}/revisions`, { signal });
      const found = revisions.find((one) => String(one.revision) === revision);
      if (!found) throw new Problem(404, "Not Found", `The probe has no revision ${revision}.`);
      config = found.config;
    }
    return { name, config, tag: answer.headers.get("etag") };
  }, [name, revision]);
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <><h1>{name}</h1><ProblemBox problem={loading.problem} /></>;
  return <Write start={Promise.resolve(loading.value)} />;
}

/** If both directions share a text, each finding about it is shown once. */
function once(problem: Problem): Problem {
  const seen = new Set<string>();
  const errors = problem.errors
    .map((finding) => (finding.field && /^(in|e)gress\.(source$|files\.)/.test(finding.field) ? { ...finding, field: finding.field.replace(/^(in|e)gress\./, "") } : finding))
    .filter((finding) => {
      // The verifier's messages name other registers in each direction. Equal places and hints mean one mistake.
      const id = JSON.stringify(finding.hint && finding.line ? { ...finding, column: 0, message: "" } : finding);
      return !seen.has(id) && seen.add(id);
    });
  return new Problem(problem.status, problem.title, problem.detail, errors, problem.log);
}

/** True if both directions share a text. */
const isOne = (config: Config) =>
  !!config.ingress?.source && config.ingress.source === config.egress?.source && JSON.stringify(config.ingress.files ?? {}) === JSON.stringify(config.egress.files ?? {});

type Outcome =
  | { kind: "none" }
  | { kind: "busy"; what: string }
  | { kind: "valid"; report: Report }
  | { kind: "deployed"; probe: Probe; outcome: string | null }
  | { kind: "refused"; problem: Problem };

function Write({ start }: { start: Promise<Draft> }) {
  const [state, setState] = useState<Draft | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    start.then(setState, (error) => setProblem(asProblem(error)));
  }, []);
  if (problem) return <ProblemBox problem={problem} />;
  return state ? <Editing start={state} /> : <p class="empty" role="status">Loading…</p>;
}

function Editing({ start }: { start: Draft }) {
  const [config, setConfig] = useState<Config>(start.config);
  const [name, setName] = useState(start.name);
  const [tag, setTag] = useState(start.tag);
  const [reason, setReason] = useState("");
  const [one, setOne] = useState(isOne(start.config));
  const directions = DIRECTIONS.filter((direction) => config[direction]);
  const [direction, setDirection] = useState<Direction>(directions[0] ?? "ingress");
  const [outcome, setOutcome] = useState<Outcome>({ kind: "none" });
  const [goTo, setGoTo] = useState<{ line: number; column?: number } | null>(null);
  const [saved, setSaved] = useState(start.tag ? JSON.stringify([start.name, start.config]) : "");
  const changed = JSON.stringify([name, config]) !== saved;
  const exists = tag !== null;
  const shown = config[direction] ? direction : (directions[0] ?? "ingress");
  const source = config[shown]?.source ?? "";
  const files = config[shown]?.files ?? {};
  const [chosen, setFile] = useState(SOURCE);
  const file = files[chosen] === undefined ? SOURCE : chosen;
  const text = files[file] ?? source;
  const maps = useMemo(() => Object.fromEntries(DIRECTIONS.map((one) => [one, mapsOf(config[one]?.source ?? "")])), [config]);

  useEffect(() => {
    const ask = (event: BeforeUnloadEvent) => changed && event.preventDefault();
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, [changed]);

  const setText = (name: string, text: string | null) =>
    setConfig((config) => {
      const next = { ...config };
      for (const each of one ? directions : [shown]) next[each] = withFile(next[each], name, text);
      return next;
    });
  const findings = outcome.kind === "refused" ? outcome.problem.errors : [];
  const warnings = outcome.kind === "valid" ? outcome.report.warnings : outcome.kind === "deployed" ? outcome.probe.warnings : [];
  const here = (all: Finding[]) => all.filter((finding) => finding.line && (one || !finding.field || finding.field.startsWith(shown)) && finding.stage !== "config" && fileOf(finding) === file);
  const errors = useMemo(() => here(findings), [outcome, shown, one, file]);
  const warned = useMemo(() => here(warnings), [outcome, shown, one, file]);
  const jump = (finding: Finding) => {
    const of = DIRECTIONS.find((each) => finding.field?.startsWith(each));
    if (of && of !== shown && !one) setDirection(of);
    setFile(fileOf(finding));
    setGoTo({ line: finding.line!, column: finding.column });
  };

  const run = async (what: string, request: () => Promise<Outcome>) => {
    setOutcome({ kind: "busy", what });
    const next = await request().catch((error): Outcome => ({ kind: "refused", problem: one ? once(asProblem(error)) : asProblem(error) }));
    setOutcome(next);
    const first = next.kind === "refused" ? next.problem.errors.find((finding) => finding.line && finding.stage !== "config") : undefined;
    if (first) jump(first);
    return next;
  };
  const validate = () =>
    run("Compiling, verifying and measuring…", async () => ({ kind: "valid", report: await ask<Report>("/v1/validate", { method: "POST", body: { ...config, name: name || "draft" } }) }));
  const deploy = () =>
    run(exists ? "Replacing…" : "Deploying…", async () => {
      if (!name) throw new Problem(0, "Name", "A probe needs a name.", []);
      const condition: Record<string, string> = tag ? { "If-Match": tag } : { "If-None-Match": "*" };
      const { name: _, ...body } = config;
      const answer = await send(withReason(probePath(name), reason), { method: "PUT", body, headers: condition });
      const probe = parseJson(await answer.text()) as Probe;
      putProbe(probe);
      setTag(answer.headers.get("etag"));
      setSaved(JSON.stringify([name, config]));
      setReason("");
      return { kind: "deployed", probe, outcome: answer.headers.get("twinprobe-outcome") };
    });
  const busy = outcome.kind === "busy";
  return (
    <>
      <div class="view-head">
        <h1>{exists ? `Edit ${name}` : "New probe"}</h1>
        {changed && exists && <span class="muted">changed</span>}
        <div class="actions">
          <Reason value={reason} onChange={setReason} />
          <button type="button" disabled={busy} onClick={validate}>Validate</button>
          <button type="button" class="primary" disabled={busy} onClick={deploy}>{exists ? "Deploy (replace)" : "Deploy"}</button>
        </div>
      </div>
      <div class="editor">
        <div class="editor-source">
          {directions.length > 1 && (
            <div class="controls">
              {!one && <Tabs label="Directions" tabs={directions.map((each) => [each, `${each} source`] as const)} active={shown} onSelect={(id) => setDirection(id as Direction)} />}
              <Check label="one source for both directions" value={one} onChange={(on) => { setOne(on); if (on) setConfig({ ...config, ingress: { ...config.ingress, source, files: config[shown]?.files }, egress: { ...config.egress, source, files: config[shown]?.files } }); }} />
            </div>
          )}
          {config[shown]?.object ? <p class="note">This direction has a compiled object and no source.</p> : (
            <Panel tab={shown}>
              <Code key={`${shown} ${file}`} label={file || `C source of ${one ? "both directions" : shown}`} value={text} errors={errors} warnings={warned} goTo={goTo} onChange={(text) => setText(file, text)} onSave={validate} />
              <FileTabs direction={shown} files={files} shown={file} findings={findings} onShow={setFile} onChange={setText} />
            </Panel>
          )}
          <div class="outcome" aria-live="polite">
            {outcome.kind === "busy" && <p class="muted">{outcome.what}</p>}
            {outcome.kind === "refused" && <ProblemBox problem={outcome.problem} onGo={jump} />}
            {outcome.kind === "refused" && outcome.problem.status === 412 && <p class="note">Somebody has {exists ? "changed this probe since it was opened here" : "made a probe of this name"}. <a href={link("probe", name, "revisions")}>Look at it</a> before you go on.</p>}
            {outcome.kind === "valid" && (
              <div class="valid">
                <p class="good-text"><strong>Valid.</strong> Nothing was attached. {exists ? "Deploying replaces the probe between two packets." : "Deploy attaches it."}</p>
                <Costs cost={outcome.report.cost} />
                <p class="muted">All maps together: {bytes(outcome.report.cost.map_bytes)} once they are full.</p>
                <Warnings warnings={outcome.report.warnings} />
              </div>
            )}
            {outcome.kind === "deployed" && (
              <div class="valid">
                <p class="good-text"><strong>{outcome.outcome === "created" ? "Deployed." : outcome.outcome === "unchanged" ? "Nothing has changed." : `Runs as revision ${outcome.probe.revision}.`}</strong> <a href={link("probe", name)}>See what it counts</a></p>
                <Warnings warnings={outcome.probe.warnings} />
              </div>
            )}
            {outcome.kind === "none" && <p class="muted">Ctrl+Enter validates: the daemon compiles the source, the kernel verifies it, and a trial says what it costs. Nothing is attached by that. Escape, then Tab leaves the editor.</p>}
          </div>
        </div>
        <Form config={config} name={name} exists={exists} maps={maps as never} findings={findings} onName={setName} onChange={setConfig} onDirections={setDirection} />
      </div>
    </>
  );
}
