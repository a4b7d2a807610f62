// The entries of one window.
import type { Document, Probe } from "../../api/types.ts";
import { clock, duration, exact, plural } from "../../data/format.ts";
import { histogramOf } from "../../data/histogram.ts";
import { keyLabelOf, metricAt, placeId, ruleOf } from "../../data/rows.ts";
import { Empty, Select } from "../../parts/basics.tsx";
import { parameter } from "../../parts/route.ts";
import { MetricTable } from "../../parts/table.tsx";
import { isCumulative } from "../../data/top.ts";
import { placeOptions, usePlace } from "./choice.ts";

export function Tables({ probe, documents, readAt }: { probe: Probe; documents: Document[]; readAt?: Date }) {
  const [seq, setSeq] = parameter("window", "newest");
  const document = documents.find((one) => String(one.window?.seq) === seq) ?? documents[documents.length - 1]!;
  const { places, place, setPlace } = usePlace(documents.slice(0, documents.indexOf(document) + 1));
  if (!place) return <Empty>This probe shows no metric.</Empty>;
  const { window } = document;
  const { help } = metricAt(document, place)!;
  const sums = isCumulative(probe, place);
  const seconds = window && !sums ? (window.duration_ns ?? 0) / 1e9 : undefined;
  const ends = [...documents].reverse().filter((one) => one.window).slice(0, 200);
  const options: (readonly [string, string])[] = [["newest", "newest"], ...ends.map((one) => [String(one.window!.seq), `${one.window!.seq}, ${clock(one.window!.end)}`] as const)];
  return (
    <>
      <div class="controls">
        <Select label="Metric" value={placeId(place)} options={placeOptions(places)} onChange={setPlace} />
        {ends.length > 0 && <Select label="Window" value={seq} options={options} onChange={setSeq} />}
        <p class="muted summary">
          {window
            ? `Window ${exact(window.seq)}: ${clock(window.start)} to ${clock(window.end)}, ${duration(window.duration_ns ?? 0)}; grace period ${duration(window.quiesce_us * 1000)}`
            : readAt && `as read at ${clock(readAt)}`}
          {window?.lost_windows && <strong class="bad-text"> {plural(window.lost_windows, "window")} lost before it</strong>}
        </p>
      </div>
      {(help || sums) && <p class="muted help">{help}{help && sums && ". "}{sums && "Counted since the beginning."}</p>}
      <MetricTable key={placeId(place)} name={place.name} metric={metricAt(document, place)!} seconds={seconds} isCount={(column) => ruleOf(probe, place, column.id) === "sum"} scale={histogramOf(probe, place, metricAt(document, place))} keyLabel={keyLabelOf(probe, place)} hasLinks />
    </>
  );
}
