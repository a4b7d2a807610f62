// A table of the daemons of `serve --nodes`: whether each daemon answers, its probes and its
// problems.
import { useRef } from "preact/hooks";
import type { NodeProbe, NodeStatus } from "../../api/nodes.ts";
import { bits, count, duration, exact, plural } from "../../data/format.ts";
import { isShown, type NodeRate, ratesOf } from "../../data/nodes.ts";
import { useLive } from "../../live/asked.ts";
import { hello, may } from "../../live/changes.ts";
import { Badge, Empty, ProblemBox, Section } from "../../parts/basics.tsx";
import { linkWith, parameter } from "../../parts/route.ts";
import { Comparison } from "./comparison.tsx";
import { Filter } from "./filter.tsx";

/** The page that compares a probe on several nodes. */
const comparison = (probe: string, filter: string) => linkWith(["nodes", probe], [["filter", filter || null]]);

const isAll = (probe: NodeProbe) => probe.state === "running" && probe.pending === 0;

/** The problem of a probe in words; empty if there is none. */
const trouble = (probe: NodeProbe) =>
  probe.reason ? `${probe.name}: ${probe.reason}` : probe.state === "failed" ? `${probe.name} does not run` : probe.lost > 0 ? `${probe.name}: ${plural(probe.lost, "window")} lost` : "";

function State({ node }: { node: NodeStatus }) {
  if (node.problem) return <Badge kind="bad">{node.problem.status ? "refuses" : "no answer"}</Badge>;
  if (node.probes.some((probe) => probe.state === "failed")) return <Badge kind="bad">a probe failed</Badge>;
  if (!node.probes.every(isAll)) return <Badge kind="warn">a probe waits</Badge>;
  return <Badge kind="good">answers</Badge>;
}

function Row({ node, rate, filter }: { node: NodeStatus; rate: NodeRate | undefined; filter: string }) {
  const costs = node.probes.flatMap((probe) => probe.ns_per_packet ?? []);
  const wrong = [node.problem?.detail ?? "", ...node.probes.map(trouble)].filter(Boolean);
  const isOther = node.version && node.version !== hello.value?.version;
  return (
    <tr>
      <th scope="row">
        <span>{node.name}{node.labels && <span class="muted"> {Object.entries(node.labels).map(([key, value]) => `${key}=${value}`).join(" ")}</span>}</span>
        {wrong.length > 0 && <p class="reason">{wrong.slice(0, 3).join("; ")}{wrong.length > 3 && ` and ${wrong.length - 3} more`}</p>}
      </th>
      <td data-label="State"><span><State node={node} /></span></td>
      <td data-label="Version"><span>{node.version || "–"}{isOther && <span class="muted"> (here {hello.value?.version})</span>}</span></td>
      <td data-label="Probes"><span>{node.probes.length === 0 ? "–" : node.probes.map((probe, index) => <>{index > 0 && ", "}<a href={comparison(probe.name, filter)} class={isAll(probe) ? "" : "warn-text"}>{probe.name}</a></>)}</span></td>
      <td class="number" data-label="Packets/s">{rate ? count(rate.packets) : "–"}</td>
      <td class="number" data-label="Traffic">{rate ? `${bits(rate.bits)}/s` : "–"}</td>
      <td class="number" data-label="Highest cost per packet">{costs.length > 0 ? duration(Math.max(...costs)) : "–"}</td>
      <td class="number" data-label="Windows lost">{node.problem ? "–" : exact(node.probes.reduce((sum, probe) => sum + probe.lost, 0))}</td>
    </tr>
  );
}

/** The probes of all nodes, those of most nodes first. */
function Probes({ nodes, filter }: { nodes: NodeStatus[]; filter: string }) {
  const counts = new Map<string, number>();
  for (const { probes } of nodes) for (const { name } of probes) counts.set(name, (counts.get(name) ?? 0) + 1);
  if (counts.size === 0) return null;
  return (
    <Section title="Compare a probe">
      <ul class="choices">
        {[...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name, number]) => (
          <li><a href={comparison(name, filter)}>{name}</a> <span class="muted">{plural(number, "node")}</span></li>
        ))}
      </ul>
    </Section>
  );
}

/** The rates between the last two answers. */
function useRates(all: NodeStatus[]): Map<string, NodeRate> {
  const kept = useRef<{ all: NodeStatus[]; rates: Map<string, NodeRate> }>({ all, rates: new Map() });
  if (kept.current.all !== all) kept.current = { all, rates: ratesOf(kept.current.all, all) };
  return kept.current.rates;
}

function Table({ all }: { all: NodeStatus[] }) {
  const rates = useRates(all);
  const [filter] = parameter("filter");
  const nodes = all.filter((node) => isShown(node, filter));
  const silent = all.filter((node) => node.problem).length;
  return (
    <>
      <p class="muted" role="status">{plural(all.length, "node")}, {silent === 0 ? "and all answer" : <span class="bad-text">{exact(silent)} without an answer</span>}</p>
      <div class="controls"><Filter shown={nodes.length} all={all.length} /></div>
      {nodes.length === 0 ? <Empty>No node has this name or these labels.</Empty> : (
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Nodes">
          <table class="probes stacked">
            <thead>
              <tr>
                <th scope="col">Node</th><th scope="col">State</th><th scope="col">Version</th><th scope="col">Probes</th>
                <th scope="col" class="number">Packets/s</th><th scope="col" class="number">Traffic</th>
                <th scope="col" class="number">Highest cost per packet</th><th scope="col" class="number">Windows lost</th>
              </tr>
            </thead>
            <tbody>{nodes.map((node) => <Row key={node.name} node={node} rate={rates.get(node.name)} filter={filter} />)}</tbody>
          </table>
        </div>
      )}
      <Probes nodes={nodes} filter={filter} />
    </>
  );
}

function Asked({ probe }: { probe: string | undefined }) {
  const [loading] = useLive<{ nodes: NodeStatus[] }>("/v1/nodes", () => []);
  if (loading.state === "loading") return <p class="empty" role="status">Asking the nodes…</p>;
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  const { nodes } = loading.value;
  return probe === undefined ? <Table all={nodes} /> : <Comparison key={probe} probe={probe} all={nodes} />;
}

export function Nodes({ probe }: { probe?: string }) {
  return (
    <>
      <div class="view-head">
        <h1>{probe ?? "Nodes"}</h1>
        {probe !== undefined && <p class="muted facts-line">on several nodes · <a href={linkWith(["nodes"], [["filter", parameter("filter")[0] || null]])}>all nodes</a></p>}
      </div>
      {hello.value?.nodes ? <Asked probe={probe} />
        : may("collector") ? <Empty>This daemon knows no other nodes: <code>serve --nodes FILE</code> names some.</Empty>
        : <p class="note">Nodes need the role collector.</p>}
    </>
  );
}
