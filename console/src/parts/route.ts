// Where in the console one is: the part of the address behind `#`.
import { computed, signal } from "@preact/signals";

const hash = signal(location.hash);
addEventListener("hashchange", () => (hash.value = location.hash));

/** The parts of the path, and its parameters. */
export const route = computed(() => {
  const [path = "", query = ""] = hash.value.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts, query: new URLSearchParams(query) };
});

export const link = (...parts: string[]) => `#/${parts.map(encodeURIComponent).join("/")}`;

export function go(...parts: string[]) {
  location.hash = link(...parts);
}
