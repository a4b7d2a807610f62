// The read-only overview of a fleet: each object with rollout step, numbers of nodes, highest cost and failures.
import { useEffect, useState } from "preact/hooks";
import type { FleetObject, FleetOverview } from "../../api/fleet.ts";
import { ago, duration, exact, plural } from "../../data/format.ts";
import { Badge, Empty, Section, Wide } from "../../parts/basics.tsx";
import { setTheme, theme, type Theme } from "../../parts/theme.ts";

/** The time between two requests. */
const EVERY = 2000;

/** Polls the operator. The last answer stays on the page while the operator does not answer. */
function useFleet(): [FleetOverview | null, string | null] {
  const [fleet, set] = useState<FleetOverview | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  useEffect(() => {
    let timer = 0;
    const look = async () => {
      try {
        const answer = await fetch("/v1/fleet", { signal: AbortSignal.timeout(EVERY * 5) });
        if (!answer.ok) throw new Error(`it answers ${answer.status}`);
        set(await answer.json());
        setTrouble(null);
      } catch (error) {
        setTrouble(error instanceof Error ? error.message : String(error));
      }
      timer = window.setTimeout(look, EVERY);
    };
    void look();
    return () => clearTimeout(timer);
  }, []);
  return [fleet, trouble];
}

const condition = (object: FleetObject, type: string) => object.conditions.find((one) => one.type === type);

function State({ object }: { object: FleetObject }) {
  if (object.isLeaving) return <Badge kind="warn">leaving</Badge>;
  const accepted = condition(object, "Accepted");
  if (accepted?.status === "False") return <Badge kind="bad" title={accepted.message}>refused</Badge>;
  if (condition(object, "Degraded")?.status === "True") return <Badge kind="bad">degraded</Badge>;
  if (condition(object, "Available")?.status === "True") return <Badge kind="good">available</Badge>;
  return <Badge kind="plain">{condition(object, "Progressing")?.reason ?? "new"}</Badge>;
}

/** The remarks beside the numbers. */
function Words({ object }: { object: FleetObject }) {
  const said = ["Accepted", "Progressing", "Compiled"].map((type) => condition(object, type));
  const words = [
    said[0]?.status === "False" && said[0].message,
    said[1] && ["Paused", "Stopped", "RolledBack"].includes(said[1].reason) && said[1].message,
    said[2]?.status === "False" && said[2].message,
    !object.isCurrent && "the status is about an earlier state of the object",
  ].filter(Boolean);
  return words.length > 0 ? <p class="reason">{words.join("; ")}</p> : null;
}

function Objects({ objects }: { objects: FleetObject[] }) {
  return (
    <Wide label="Objects">
      <thead>
        <tr>
          <th scope="col">Object</th><th scope="col">State</th><th scope="col">Step</th>
          <th scope="col" class="number">Selected</th><th scope="col" class="number">Updated</th><th scope="col" class="number">Running</th>
          <th scope="col" class="number">Failed</th><th scope="col" class="number">Excluded</th><th scope="col" class="number">Silent</th>
          <th scope="col" class="number">Worst cost</th>
        </tr>
      </thead>
      <tbody>
        {objects.map((object) => (
          <tr>
            <th scope="row">{object.name}{object.kind === "MonitoringRule" && <span class="muted"> rule</span>}<Words object={object} /></th>
            <td><State object={object} /></td>
            <td>
              {object.step ?? (object.firing === undefined ? "–" : `firing on ${exact(object.firing)}`)}
              {object.stepBegan && <span class="muted"> {ago(object.stepBegan)}</span>}
            </td>
            {(["selected", "updated", "running", "failed", "excluded", "silent"] as const).map((name) => (
              <td class="number"><span class={name === "failed" && object.counts.failed > 0 ? "bad-text" : ""}>{exact(object.counts[name])}</span></td>
            ))}
            <td class="number">
              {object.worst ? <>{duration(object.worst.nsPerPacket)} <span class="muted">{object.worst.node}{object.worst.at ? `, ${object.worst.at}` : ", trial"}</span></> : "–"}
            </td>
          </tr>
        ))}
      </tbody>
    </Wide>
  );
}

function Failures({ objects }: { objects: FleetObject[] }) {
  const all = objects.flatMap((object) => object.failures.map((failure) => ({ object: object.name, ...failure })));
  if (all.length === 0) return null;
  return (
    <Section title="Failures">
      <Wide label="Failures">
        <thead><tr><th scope="col">Object</th><th scope="col">Node</th><th scope="col">Stage</th><th scope="col">Reason</th></tr></thead>
        <tbody>{all.map((one) => <tr><th scope="row">{one.object}</th><td>{one.node}</td><td>{one.stage}</td><td>{one.reason}</td></tr>)}</tbody>
      </Wide>
    </Section>
  );
}

export function Fleet() {
  const [fleet, trouble] = useFleet();
  return (
    <>
      <header class="topbar">
        <a class="brand" href="/">twinprobe<span class="node">fleet</span></a>
        <div class="status">
          <span class={`connection ${trouble ? "lost" : fleet ? "live" : "connecting"}`} role="status">
            <span class="dot" aria-hidden="true" />{trouble ? "connection lost" : fleet ? "live" : "connecting"}
          </span>
          <label class="theme">
            <span>Theme</span>
            <select value={theme.value} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
              {["system", "light", "dark"].map((value) => <option value={value} selected={theme.value === value}>{value}</option>)}
            </select>
          </label>
        </div>
      </header>
      {trouble && <div class="lost" role="alert">The operator gives no answer: {trouble}. What is shown is from before. The page tries again.</div>}
      <main id="main-content" tabIndex={-1}>
        {!fleet ? <p class="empty" role="status">Connecting to the operator…</p> : fleet.objects.length === 0 ? (
          <Empty>No objects: kubectl apply -f FILE makes a MonitoringProbe.</Empty>
        ) : (
          <>
            <Section title={plural(fleet.objects.length, "object")}><Objects objects={fleet.objects} /></Section>
            <Failures objects={fleet.objects} />
          </>
        )}
      </main>
      <footer><span>{fleet ? `twinprobe-operator ${fleet.version}` : "twinprobe-operator"}</span><a href="/v1/fleet">Document</a></footer>
    </>
  );
}
