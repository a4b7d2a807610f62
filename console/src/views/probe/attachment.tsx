// The attachments of a probe, with their programs and costs.
import type { Probe } from "../../api/types.ts";
import { DIRECTIONS } from "../../api/types.ts";
import { bits, bytes, count, duration, exact, moment } from "../../data/format.ts";
import { ratesOf } from "../../live/traffic.ts";
import { Badge, Section, Wide } from "../../parts/basics.tsx";

export function Costs({ cost }: { cost: NonNullable<Probe["cost"]> }) {
  return (
    <Wide label="Cost">
      <thead><tr><th scope="col">Direction</th><th scope="col" class="number">Per packet</th><th scope="col">Costliest sample packet</th><th scope="col" class="number">Instructions</th><th scope="col" class="number">Verified</th><th scope="col" class="number">Stack</th></tr></thead>
      <tbody>
        {DIRECTIONS.filter((direction) => cost.directions[direction]).map((direction) => {
          const one = cost.directions[direction]!;
          return (
            <tr>
              <th scope="row">{direction}</th>
              <td class="number">{one.ns_per_packet === undefined ? "not run" : `${duration(one.ns_per_packet)} ± ${duration(Math.max(15, one.noise_ns ?? 0))}`}</td>
              <td>{one.frame?.replaceAll("_", " ")}</td>
              <td class="number">{exact(one.instructions)}</td><td class="number">{exact(one.verified)}</td><td class="number">{bytes(one.stack_bytes)}</td>
            </tr>
          );
        })}
      </tbody>
    </Wide>
  );
}

/** The other programs of the object, which this probe does not run. */
function LeftOut({ names }: { names: string[] | undefined }) {
  if (!names || names.length === 0) return null;
  return <span class="muted"> left out: {names.map((name, index) => <>{index > 0 && ", "}<code>{name}</code></>)}</span>;
}

export function Attachments({ probe }: { probe: Probe }) {
  return (
    <>
      <Section title="Interfaces">
        <Wide label="Interfaces" stacked>
            <thead><tr><th scope="col">Interface</th><th scope="col">State</th><th scope="col">Direction</th><th scope="col">Hook</th><th scope="col">Mode</th><th scope="col" class="number">Packets/s</th><th scope="col" class="number">Bits/s</th><th scope="col">Remarks</th></tr></thead>
            <tbody>
              {probe.interfaces.map((at) => {
                const rate = at.direction && at.ifindex ? ratesOf(probe.config.netns, at.ifindex)?.[at.direction] : undefined;
                return (
                  <tr>
                    <th scope="row">{at.interface}</th>
                    <td data-label="State"><Badge kind={at.state === "attached" ? "good" : "warn"}>{at.state}</Badge></td>
                    <td data-label="Direction">{at.direction}</td><td data-label="Hook">{at.hook}</td><td data-label="Mode">{at.mode}</td>
                    <td class="number" data-label="Packets/s">{rate ? count(rate.packets) : "–"}</td><td class="number" data-label="Bits/s">{rate ? bits(rate.bytes * 8) : "–"}</td>
                    <td data-label="Remarks">{at.reason}{at.approximate && <span class="warn-text">{at.reason && "; "}approximate: {at.approximate}</span>}</td>
                  </tr>
                );
              })}
            </tbody>
        </Wide>
      </Section>
      <div class="columns">
        <Section title="Programs">
          <Wide label="Programs">
            <thead><tr><th scope="col">Direction</th><th scope="col">Function</th><th scope="col">Twins</th><th scope="col">Verdict</th></tr></thead>
            <tbody>
              {DIRECTIONS.filter((direction) => probe.programs[direction]).map((direction) => (
                <tr><th scope="row">{direction}</th><td><code>{probe.programs[direction]!.entry}</code><LeftOut names={probe.programs[direction]!.left_out} /></td><td>{probe.programs[direction]!.twins ? "yes" : "no"}</td><td>{probe.config[direction]?.verdict ?? "observe"}</td></tr>
              ))}
            </tbody>
          </Wide>
        </Section>
        <Section title="Probe">
          <dl class="facts">
            <dt>Created</dt><dd>{probe.created && moment(probe.created)}</dd>
            <dt>Pushed by</dt><dd>{probe.pushed_by ?? "unknown"}</dd>
            <dt>Instance</dt><dd><code>{probe.instance}</code></dd>
            {probe.expires_at && <><dt>Expires</dt><dd>{moment(probe.expires_at)}</dd></>}
            {probe.labels && <><dt>Labels</dt><dd>{Object.entries(probe.labels).map(([name, value]) => `${name}=${value}`).join(", ")}</dd></>}
            {probe.shared_maps && <><dt>Shared maps</dt><dd>{probe.shared_maps.map((map) => `${map.map} (${map.type})`).join(", ")}</dd></>}
          </dl>
        </Section>
      </div>
      {probe.cost && (
        <Section title="Cost">
          <Costs cost={probe.cost} />
          <p class="muted">Found by running a copy on sample packets before the probe was attached. All maps together take {bytes(probe.cost.map_bytes)} once they are full.</p>
          {probe.cost.live && (
            <Wide label="Measured while it runs">
              <caption>Measured while it runs</caption>
              <thead><tr><th scope="col">Interface</th><th scope="col">Direction</th><th scope="col" class="number">This probe</th><th scope="col" class="number">All probes of the hook</th><th scope="col">At</th></tr></thead>
              <tbody>{probe.cost.live.map((one) => <tr><th scope="row">{one.interface}</th><td>{one.direction} {one.hook}</td><td class="number">{duration(one.ns_per_packet)}</td><td class="number">{duration(one.dispatcher_ns_per_packet)}</td><td>{moment(one.measured)}</td></tr>)}</tbody>
            </Wide>
          )}
        </Section>
      )}
    </>
  );
}
