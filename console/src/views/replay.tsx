// The replay: the numbers that a probe would have measured on captured packets.
import { useRef, useState } from "preact/hooks";
import { ask, asProblem, type Problem, probePath } from "../api/client.ts";
import { writeJson } from "../api/json.ts";
import type { Config, Document, Probe } from "../api/types.ts";
import { bytes, clock, duration, exact } from "../data/format.ts";
import { configOf, library } from "../data/library.ts";
import { metricAt, placeId, placesOf } from "../data/rows.ts";
import { may, probes } from "../live/changes.ts";
import { Empty, ProblemBox, Section, Select, useAsk } from "../parts/basics.tsx";
import { MetricTable } from "../parts/table.tsx";

function Drop({ label, file, onFile }: { label: string; file: File | null; onFile: (file: File | null) => void }) {
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    onFile(event.dataTransfer?.files[0] ?? null);
  };
  return (
    <div class={`drop ${over ? "over" : ""}`} onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)} onDrop={drop}>
      <label>
        <span>{label}</span>
        <input ref={input} type="file" accept=".pcap,.pcapng,.cap,.snoop,.gz,.zst" onChange={(event) => onFile(event.currentTarget.files?.[0] ?? null)} />
      </label>
      <p class="muted">{file ? `${file.name}, ${bytes(file.size)}` : "Drop a pcap, pcapng or snoop file here, or choose one; it may be compressed."}</p>
      {file && <button type="button" class="link" onClick={() => { onFile(null); if (input.current) input.current.value = ""; }}>Remove</button>}
    </div>
  );
}

const WORDS: Record<string, string> = {
  packets: "seen by a program", too_short: "shorter than an Ethernet header", too_long: "too long for a replay", no_interface: "too long without an interface, which the daemon can't make", wrong_length: "longer in the file than they are",
  other_direction: "of a direction without a program", not_sampled: "left out by the sample", cut_off: "captures end within a packet",
  framed: "got an Ethernet header", skipped: "skipped",
  truncated: "captured only at their beginning", out_of_order: "earlier than a packet before", events: "events written",
};

/** The counts with their labels. Counts in a list also have a name. */
const figuresOf = (replayed: NonNullable<Document["replayed"]>): [string, number][] =>
  Object.entries(replayed).flatMap(([name, value]) => {
    const label = WORDS[name] ?? name;
    if (typeof value !== "object") return [[label, value] as [string, number]];
    return Object.entries(value).map(([of, count]): [string, number] => [`${label}: ${of}`, count]);
  });

function Result({ document, took }: { document: Document; took: number }) {
  const places = placesOf(document);
  const [id, setId] = useState("");
  const place = places.find((one) => placeId(one) === id) ?? places.find((one) => metricAt(document, one)!.entries.length > 0) ?? places[0];
  const { window, replayed } = document;
  const save = () => {
    const url = URL.createObjectURL(new Blob([writeJson(document, 2)], { type: "application/json" }));
    const link = Object.assign(page.createElement("a"), { href: url, download: `${document.probe}.json` });
    link.click();
    URL.revokeObjectURL(url);
  };
  return (
    <Section title="What it would have measured" actions={<button type="button" onClick={save}>Save as JSON</button>}>
      <dl class="figures">
        {figuresOf(replayed ?? {}).map(([label, value]) => <div class="figure"><dt>{label}</dt><dd>{exact(value)}</dd></div>)}
        {window && <div class="figure"><dt>time of the capture</dt><dd>{duration(window.duration_ns ?? 0)} <span class="muted">from {clock(window.start)}</span></dd></div>}
        <div class="figure"><dt>time of the replay</dt><dd>{duration(took * 1e6)}</dd></div>
      </dl>
      {!place ? <Empty>The probe shows no metric.</Empty> : (
        <>
          <div class="controls"><Select label="Metric" value={placeId(place)} options={places.map((one) => [placeId(one), `${one.direction} ${one.name}`] as const)} onChange={setId} /></div>
          {metricAt(document, place)!.help && <p class="muted help">{metricAt(document, place)!.help}</p>}
          <MetricTable key={placeId(place)} name={place.name} metric={metricAt(document, place)!} />
        </>
      )}
      <details><summary>The document</summary><pre tabIndex={0} aria-label="Document">{writeJson(document, 2).slice(0, 200_000)}</pre></details>
    </Section>
  );
}

/** The page. The name `document` means a document of metrics in some places here. */
const page = globalThis.document;

export function Replay() {
  const [templates] = useAsk(() => library(), []);
  const [chosen, setChosen] = useState("");
  const [capture, setCapture] = useState<File | null>(null);
  const [egress, setEgress] = useState<File | null>(null);
  const [local, setLocal] = useState("");
  const [state, setState] = useState<{ busy?: boolean; problem?: Problem; document?: Document; took?: number }>({});
  if (!may("operator")) return <><h1>Replay</h1><p class="note">A replay compiles and loads a probe, as a push does: it needs the role operator.</p></>;
  const names = [...probes.value.keys()];
  const known = templates.state === "there" ? templates.value : [];
  const options = [
    ...names.map((name) => [`probe ${name}`, `${name} (deployed here)`] as const),
    ...known.map((one) => [`library ${one.name}`, `${one.name} (library)`] as const),
  ];
  const id = options.some(([one]) => one === chosen) ? chosen : (options[0]?.[0] ?? "");
  const configFor = async (): Promise<Config> => {
    const name = id.slice(id.indexOf(" ") + 1);
    if (id.startsWith("library ")) return { ...configOf(known.find((one) => one.name === name)!, ["replay"]), name };
    return { ...(await ask<Probe>(probePath(name))).config, name };
  };
  const run = async () => {
    setState({ busy: true });
    const begun = performance.now();
    try {
      const form = new FormData();
      form.append("config", new Blob([writeJson(await configFor())], { type: "application/json" }));
      if (capture) form.append("capture", capture);
      if (egress) form.append("egress-capture", egress);
      for (const address of local.split(/[\s,]+/).filter(Boolean)) form.append("local", address);
      const document = await ask<Document>("/v1/replay", { method: "POST", form });
      setState({ document, took: performance.now() - begun });
    } catch (error) {
      setState({ problem: asProblem(error) });
    }
  };
  return (
    <>
      <div class="view-head"><h1>Replay</h1><p class="muted">The packets of a capture go through a probe that is attached to nothing.</p></div>
      <div class="controls"><Select label="Probe" value={id} options={options} onChange={setChosen} /></div>
      <div class="columns drops">
        <Drop label="Capture of both directions, or of what comes in" file={capture} onFile={setCapture} />
        <Drop label="Capture of what goes out only (optional)" file={egress} onFile={setEgress} />
      </div>
      <label class="field"><span>Addresses of the captured host (optional): what they send goes out</span>
        <input type="text" value={local} placeholder="192.0.2.1, 2001:db8::1" onInput={(event) => setLocal(event.currentTarget.value)} /></label>
      <div class="actions"><button type="button" class="primary" disabled={state.busy || !(capture || egress) || !id} onClick={run}>{state.busy ? "Replaying…" : "Replay"}</button></div>
      <div aria-live="polite">
        {state.problem && <ProblemBox problem={state.problem} />}
        {state.document && <Result document={state.document} took={state.took ?? 0} />}
      </div>
    </>
  );
}
