// The revisions of a probe: its configurations, their differences, the rollback, and who has changed the probe.
import { probePath } from "../../api/client.ts";
import type { Probe, Revision } from "../../api/types.ts";
import { differences } from "../../data/difference.ts";
import { putProbe } from "../../live/changes.ts";
import { RevisionList } from "../../parts/revisions.tsx";
import { link } from "../../parts/route.ts";
import { History } from "./history.tsx";

export function Revisions({ probe }: { probe: Probe }) {
  return (
    <>
      <RevisionList<Revision>
        path={probePath(probe.name)} revision={probe.revision} present="deployed" single="The probe has had one configuration only."
        meaning="The probe is replaced between two packets: none is missed, none is counted twice. Maps that both revisions define alike keep their counts. A second rollback undoes this one."
        compare={(before, after) => differences(before.config, after.config)} onBack={putProbe}
        more={({ revision }) => <a href={`${link("edit", probe.name)}?revision=${revision}`} aria-label={`Open in editor: revision ${revision}`}>Open in editor</a>}
      />
      <History probe={probe} />
    </>
  );
}
