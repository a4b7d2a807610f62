// The filter of nodes by name and label.
import { exact, plural } from "../../data/format.ts";
import { parameter } from "../../parts/route.ts";

/** The filter that both pages share. */
export function Filter({ shown, all }: { shown: number; all: number }) {
  const [filter, setFilter] = parameter("filter");
  return (
    <>
      <label class="field grow">
        <span>Filter</span>
        <input type="search" value={filter} placeholder="gw- or zone=west" onInput={(event) => setFilter(event.currentTarget.value, true)} />
      </label>
      {filter && <p class="muted" role="status">{exact(shown)} of {plural(all, "node")}</p>}
    </>
  );
}
