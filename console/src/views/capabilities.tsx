// The capabilities of the daemon on this machine.
import { ask } from "../api/client.ts";
import type { Capabilities as Answer } from "../api/types.ts";
import { Badge, ProblemBox, Section, useAsk, Wide } from "../parts/basics.tsx";

const OPERATIONS = [
  ["iterate", "iterate"], ["lookup_and_delete", "take one"], ["lookup_batch", "read batch"],
  ["lookup_and_delete_batch", "take batch"], ["update_batch", "write batch"], ["delete_batch", "delete batch"],
] as const;

const Yes = ({ value }: { value: boolean | undefined }) => (value ? <Badge kind="good">yes</Badge> : <span class="muted">no</span>);

export function Capabilities() {
  const [loading, again] = useAsk((signal) => ask<Answer>("/v1/capabilities", { signal }), []);
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  if (loading.state === "failed") return <><h1>Capabilities</h1><ProblemBox problem={loading.problem} /><button type="button" onClick={again}>Try again</button></>;
  const { kernel, maps, events, compiler } = loading.value;
  return (
    <>
      <div class="view-head"><h1>Capabilities</h1><p class="muted">Found by trying, never by the kernel's version.</p></div>
      <div class="columns">
        <Section title="Kernel">
          <dl class="facts">
            <dt>Release</dt><dd>{kernel.release}</dd>
            <dt>Possible CPUs</dt><dd>{kernel.possible_cpus}</dd>
            {Object.entries(kernel).map(([feature, value]) => typeof value === "boolean" && (
              <><dt>{feature.replaceAll("_", " ")}</dt><dd><Yes value={value} /></dd></>
            ))}
          </dl>
        </Section>
        <Section title="Grace periods">
          <Wide label="Methods of waiting for grace periods">
            <thead><tr><th scope="col">Method</th><th scope="col">Available</th><th scope="col">Reason</th></tr></thead>
            <tbody>
              {kernel.quiesce_methods.map((method) => (
                <tr><th scope="row">{method.name}{method.name === kernel.quiesce && <span class="muted"> in use</span>}</th><td><Yes value={method.available} /></td><td>{method.reason}</td></tr>
              ))}
            </tbody>
          </Wide>
        </Section>
        <Section title="Compiler">
          <dl class="facts">
            <dt>Version</dt><dd>{compiler.version || "none"}</dd>
            <dt>Confined</dt><dd><Yes value={compiler.confined} /></dd>
            {compiler.error && <><dt>Error</dt><dd class="bad-text">{compiler.error}</dd></>}
          </dl>
        </Section>
        <Section title="Events">
          <dl class="facts">
            {events.map((map) => <><dt>{map.type}</dt><dd>{map.unavailable ?? <Yes value={true} />}</dd></>)}
          </dl>
        </Section>
      </div>
      <Section title="Map types, and how they are read">
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Map types">
          <table>
            <thead><tr><th scope="col">Type</th><th scope="col">Strategy</th>{OPERATIONS.map(([, text]) => <th scope="col">{text}</th>)}</tr></thead>
            <tbody>
              {maps.map((map) => (
                <tr>
                  <th scope="row">{map.type}</th>
                  <td>{map.unavailable ?? map.strategy?.replaceAll("_", " ")}</td>
                  {OPERATIONS.map(([id]) => <td><Yes value={map.operations[id]} /></td>)}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Section>
    </>
  );
}
