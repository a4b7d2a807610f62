// One probe: its counts, its attachments and its revisions.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { asProblem, type Problem, probePath, send, withReason } from "../../api/client.ts";
import type { Probe } from "../../api/types.ts";
import { duration, exact, plural } from "../../data/format.ts";
import { alertsOf } from "../../data/alerts.ts";
import { isPast, rangeId, rangeOf } from "../../data/range.ts";
import { hasWindows, loadDocuments, type Loader } from "../../live/documents.ts";
import { isLarge } from "../../live/chart.ts";
import { connection, hello, may, probes } from "../../live/changes.ts";
import { rateOf } from "../../live/traffic.ts";
import { count } from "../../data/format.ts";
import { Dialog, Empty, Panel, ProblemBox, Reason, Tabs, Warnings } from "../../parts/basics.tsx";
import { RangePicker } from "../../parts/range.tsx";
import { go, goKeeping, link, route } from "../../parts/route.ts";
import { AlertList } from "../overview/alerts.tsx";
import { nanoseconds, StateBadge } from "../overview/state.tsx";
import { Attachments } from "./attachment.tsx";
import { Events } from "./events.tsx";
import { Histograms } from "./histograms.tsx";
import { Lines } from "./lines.tsx";
import { Revisions } from "./revisions.tsx";
import { Tables } from "./tables.tsx";
import { Windows } from "./windows.tsx";

function Delete({ probe, onClose }: { probe: Probe; onClose: () => void }) {
  const [problem, setProblem] = useState<Problem | null>(null);
  const [reason, setReason] = useState("");
  const remove = () =>
    send(withReason(probePath(probe.name), reason), { method: "DELETE" }).then(() => go(), (error) => setProblem(asProblem(error)));
  return (
    <Dialog title={`Delete ${probe.name}?`} onClose={onClose}>
      <p>Its programs leave the kernel. {plural(probe.windows.retained, "retained window")} and all its revisions are deleted with it. This can't be undone. The list of changes stays.</p>
      <Reason value={reason} onChange={setReason} keeper="the list of changes" />
      {problem && <ProblemBox problem={problem} />}
      <div class="actions"><button type="button" class="danger" onClick={remove}>Delete</button><button type="button" onClick={onClose}>Cancel</button></div>
    </Dialog>
  );
}

/** The reason why there are no figures yet, and what to do. */
function Nothing({ probe, loader, isChosen }: { probe: Probe; loader: Loader; isChosen: boolean }) {
  if (loader.loading.value) return <p class="empty" role="status">Loading…</p>;
  if (isChosen && probe.windows.retained > 0) return <Empty>No window of this range of time is retained.</Empty>;
  if (!hasWindows(probe.config)) return <Empty>This probe has no windows: nothing it counts is reset by a reading. Read it as it is now.</Empty>;
  if (probe.config.window?.interval) return <Empty>The first window ends within {probe.config.window.interval}.</Empty>;
  return <Empty>No window was closed yet. Close one now, or give the probe an interval under “Windows”, and figures come by themselves.</Empty>;
}

export function ProbeView({ name, tab }: { name: string; tab: string }) {
  const probe = probes.value.get(name);
  const collects = may("collector");
  const [deleting, setDeleting] = useState(false);
  const live = connection.value === "live";
  const exists = probe !== undefined;
  const { query } = route.value;
  const latest = useRef<{ instance?: string; few: boolean; loader: Loader } | null>(null);
  // The daemon makes the chart of large windows, unless the chart needs data that only whole windows have.
  const [unfit, setUnfit] = useState(false);
  const isChart = tab === "chart" || !tab;
  // Data older than the oldest window comes from the server that the operator has named.
  const history = isChart || tab === "histogram" ? (hello.value?.history ?? "") : "";
  const [oldest, setOldest] = useState<{ of: string; first: number } | null>(null);
  const range = rangeOf(query);
  const past = !!history && range !== null && oldest?.of === name && isPast(range, oldest.first);
  const few = past || (!!probe && isChart && !unfit && isLarge(probe) && !query.get("by") && query.get("sums") !== "on" && !query.get("field")?.includes("["));
  const loader = useMemo(() => {
    if (!collects || !exists) return null;
    // Windows of the same probe are kept, so zooming fetches no window twice.
    const had = latest.current && latest.current.instance === probe.instance && latest.current.few === few ? latest.current.loader.windows.peek() : [];
    const loader = loadDocuments(name, range, few ? [] : had, few);
    latest.current = { instance: probe.instance, few, loader };
    return loader;
  }, [name, collects, exists, probe?.instance, rangeId(query), few]);
  useEffect(() => {
    if (live) void loader?.begin();
  }, [loader, live]);
  useEffect(() => () => loader?.end(), [loader]);
  const first = loader?.span.value?.first;
  useEffect(() => {
    if (first !== undefined) setOldest({ of: name, first });
  }, [name, first]);
  if (!probe) {
    return <><h1>{name}</h1><Empty>There is no probe of this name. It may have been deleted, or its lease may be over. <a href="#/">Overview</a></Empty></>;
  }
  const tabs = [
    ...(collects ? ([["chart", "Chart"], ["table", "Table"], ["histogram", "Histogram"], ...(probe.events ? [["events", "Events"]] : [])] as [string, string][]) : []),
    ["attachment", "Attachment"],
    ...(may("operator") ? ([["revisions", "Revisions"]] as [string, string][]) : []),
    ["windows", "Windows"],
  ] as [string, string][];
  const active = tabs.some(([id]) => id === tab) ? tab : tabs[0]![0];
  const figures = active === "chart" || active === "table" || active === "histogram";
  const windows = loader?.windows.value ?? [];
  const read = loader?.live.value ?? null;
  const documents = windows.length > 0 ? windows : read ? [read.document] : [];
  const [rate, ns] = [rateOf(probe), nanoseconds(probe)];
  const alerts = alertsOf(probe, documents[documents.length - 1]);
  return (
    <>
      <div class="view-head">
        <h1>{name}</h1>
        <StateBadge probe={probe} />
        <p class="muted facts-line">
          {[...new Set(probe.interfaces.map((at) => at.interface))].join(", ")}
          {rate && ` · ${count(rate.packets)} packets/s`}
          {ns !== null && ` · ${duration(ns)} per packet`}
          {` · revision ${probe.revision}`}
          {probe.windows.newest && ` · window ${exact(probe.windows.newest)}`}
          {probe.windows.lost > 0 && <span class="bad-text"> · {plural(probe.windows.lost, "window")} lost</span>}
        </p>
        <div class="actions">
          {collects && loader && probe.state === "running" && (hasWindows(probe.config)
            ? <button type="button" onClick={() => loader.close()}>Close window now</button>
            : <button type="button" onClick={() => loader.read()}>Read now</button>)}
          {may("operator") && <a class="button" href={link("edit", name)}>Edit</a>}
          {may("operator") && <button type="button" onClick={() => setDeleting(true)}>Delete…</button>}
        </div>
      </div>
      {deleting && <Delete probe={probe} onClose={() => setDeleting(false)} />}
      {alerts.length > 0 && (
        <div class={alerts[0]!.kind === "bad" ? "problem" : "warnings"} role={alerts[0]!.kind === "bad" ? "alert" : "note"}><AlertList alerts={alerts} isHere /></div>
      )}
      <Warnings warnings={probe.warnings} />
      {!collects && <p class="note">Figures need the role collector.</p>}
      <Tabs label={`Views of ${name}`} tabs={tabs} active={active} onSelect={(id) => goKeeping("probe", name, id)} />
      <Panel tab={active}>
        {loader?.problem.value && figures && <ProblemBox problem={loader.problem.value} />}
        {figures && loader && hasWindows(probe.config) && <RangePicker span={loader.span.value} history={history} />}
        {figures && loader && (documents.length === 0 || (active === "chart" && windows.length === 0 && !read)
          ? <Nothing probe={probe} loader={loader} isChosen={range !== null} />
          : active === "chart" ? <Lines probe={probe} documents={documents} stride={loader.drawn.value.stride} aggregated={few} past={past} loading={loader.loading.value} onUnfit={() => setUnfit(true)} />
          : active === "table" ? <Tables probe={probe} documents={documents} readAt={windows.length === 0 ? read?.time : undefined} />
          : <Histograms probe={probe} documents={documents} past={past} loading={loader.loading.value} />)}
        {active === "events" && <Events probe={probe} />}
        {active === "attachment" && <Attachments probe={probe} />}
        {active === "revisions" && <Revisions probe={probe} />}
        {active === "windows" && <Windows probe={probe} />}
      </Panel>
    </>
  );
}
