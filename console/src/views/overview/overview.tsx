// The overview: first the traffic, then the findings of the probes, then the probes themselves.
import { may, probes } from "../../live/changes.ts";
import { Empty, Section } from "../../parts/basics.tsx";
import { Alerts } from "./alerts.tsx";
import { Interfaces } from "./interfaces.tsx";
import { ProbeTable, Summary } from "./probes.tsx";
import { Tops } from "./tops.tsx";

export function Overview() {
  const all = [...probes.value.values()];
  return (
    <>
      <div class="view-head">
        <h1>Overview</h1>
        {may("operator") && <a class="button primary" href="#/new">New probe</a>}
      </div>
      <Alerts probes={all} />
      <Interfaces probes={all} />
      {may("collector") && all.length > 0 && <Tops probes={all} />}
      <Section title="Probes">
        {all.length === 0 ? (
          <Empty>
            No probe runs here yet. {may("operator") ? <>A probe is a small program that looks at packets and counts. <a href="#/new">Choose one of the library</a>, or write your own.</> : "Your role may not deploy one."}
          </Empty>
        ) : <><Summary all={all} /><ProbeTable all={all} /></>}
      </Section>
    </>
  );
}
