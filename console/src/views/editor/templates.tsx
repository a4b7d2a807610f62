// The library of probes as templates.
import { useState } from "preact/hooks";
import { duration } from "../../data/format.ts";
import { library } from "../../data/library.ts";
import { ProblemBox, useAsk } from "../../parts/basics.tsx";
import { link } from "../../parts/route.ts";

export function Templates() {
  const [loading] = useAsk(() => library(), []);
  const [filter, setFilter] = useState("");
  if (loading.state === "failed") return <ProblemBox problem={loading.problem} />;
  if (loading.state === "loading") return <p class="empty" role="status">Loading…</p>;
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = loading.value.filter((one) => {
    const text = [one.name, one.title, one.summary, ...one.tags].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return (
    <>
      <div class="view-head"><h1>New probe</h1><p class="muted">Choose what to begin with. Everything can be changed before it is deployed.</p></div>
      <div class="controls">
        <label class="field grow"><span>Search the library</span><input type="search" value={filter} placeholder="dns, flood, latency, vlan …" onInput={(event) => setFilter(event.currentTarget.value)} /></label>
        <a class="button" href={link("new", "empty")}>Write your own</a>
      </div>
      <p class="hidden" role="status">{found.length} probes</p>
      <ul class="templates">
        {found.map((one) => (
          <li>
            <a href={link("new", one.name)}><strong>{one.name}</strong><span>{one.title}</span></a>
            <p>{one.summary}</p>
            <p class="muted">{one.hooks.join(" or ")} · {one.directions.join(" and ")} · about {duration(one.cost)} per packet · {one.tags.join(", ")}</p>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="empty">The library has nothing like that. <a href={link("new", "empty")}>Write your own</a>.</p>}
    </>
  );
}
