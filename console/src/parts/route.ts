// The current place in the console: the part of the address after `#`. It has every choice of the user, so that an
// address shows everyone the same view, and the browser's buttons lead back and forth.
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

/** An address with parameters; empty ones are left out. */
export function linkWith(parts: string[], parameters: Iterable<[string, string | null]>): string {
  const query = new URLSearchParams([...parameters].filter((one): one is [string, string] => !!one[1]));
  const text = query.toString();
  return text ? `${link(...parts)}?${text}` : link(...parts);
}

export function go(...parts: string[]) {
  location.hash = link(...parts);
}

/** Changes to another view of the same object and keeps the user's choices. */
export function goKeeping(...parts: string[]) {
  location.hash = linkWith(parts, route.peek().query);
}

/**
 * Changes parameters of the address. Each choice is a step for the browser's back button. `replace` makes no step, for
 * example for typed text.
 */
export function choose(changes: Record<string, string | null>, replace = false) {
  const { parts, query } = route.peek();
  const next = linkWith(parts, Object.entries({ ...Object.fromEntries(query), ...changes }));
  if (next === location.hash) return;
  if (replace) history.replaceState(null, "", next);
  else history.pushState(null, "", next);
  hash.value = location.hash;
}

/** The value of a parameter; `fallback` if the address has none. The address leaves `fallback` out. */
export function parameter(name: string, fallback = ""): [string, (value: string, replace?: boolean) => void] {
  const value = route.value.query.get(name) ?? fallback;
  return [value, (value, replace) => choose({ [name]: value === fallback ? null : value }, replace)];
}

/** The value of a parameter that is on or off. */
export function toggle(name: string, fallback: boolean): [boolean, (on: boolean) => void] {
  const [value, set] = parameter(name, fallback ? "on" : "off");
  return [value === "on", (on) => set(on ? "on" : "off")];
}
