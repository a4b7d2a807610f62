// Where in the console one is: the part of the address behind `#`. Everything that a view shows by choice stands there, so
// that an address shows the same to whoever opens it, and the browser's buttons lead back and forth.
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

/** Goes to another view of the same thing, with the choices that were made. */
export function goKeeping(...parts: string[]) {
  location.hash = linkWith(parts, route.peek().query);
}

/**
 * Changes parameters of the address. Each choice is a step to which the browser's button goes back; with `replace`, as
 * for what is typed, it is not.
 */
export function choose(changes: Record<string, string | null>, replace = false) {
  const { parts, query } = route.peek();
  const next = linkWith(parts, Object.entries({ ...Object.fromEntries(query), ...changes }));
  if (next === location.hash) return;
  if (replace) history.replaceState(null, "", next);
  else history.pushState(null, "", next);
  hash.value = location.hash;
}

/** The value of a parameter. What is not in the address is `fallback`, and the other way round. */
export function parameter(name: string, fallback = ""): [string, (value: string, replace?: boolean) => void] {
  const value = route.value.query.get(name) ?? fallback;
  return [value, (value, replace) => choose({ [name]: value === fallback ? null : value }, replace)];
}

/** The same for what is on or off. */
export function toggle(name: string, fallback: boolean): [boolean, (on: boolean) => void] {
  const [value, set] = parameter(name, fallback ? "on" : "off");
  return [value === "on", (on) => set(on ? "on" : "off")];
}
