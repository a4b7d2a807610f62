// The daemon's names of addresses, for views that show names. Pending names arrive a moment later.
import { signal } from "@preact/signals";
import { ask } from "../api/client.ts";

interface NameList {
  kinds: string[];
  addresses: { address: string; names: { name: string; from: string }[]; pending?: boolean }[];
}

/** The names of each requested address. */
const known = signal<ReadonlyMap<string, string>>(new Map());

/** True if the daemon does not look up names. */
export const nameless = signal(false);

/** The most addresses in one request. */
const MOST = 200;
/** The most addresses whose names are kept. */
const KEPT = 5_000;
/** The number of requests for an address while its name is pending, and the milliseconds between them. */
const TRIES = 4;
const PAUSE = 1_500;

const tries = new Map<string, number>();
const wanted = new Set<string>();
let timer: ReturnType<typeof setTimeout> | null = null;

const V4 = /^\d{1,3}(\.\d{1,3}){3}$/;
const V6 = /^[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:.]*$/i;

/** True if a text is an address as documents write it. */
export const isAddress = (text: string) => V4.test(text) || V6.test(text);

async function request() {
  timer = null;
  const now = [...wanted].slice(0, MOST);
  now.forEach((address) => wanted.delete(address));
  try {
    const list = await ask<NameList>(`/v1/names?${now.map((address) => `address=${encodeURIComponent(address)}`).join("&")}`);
    nameless.value = list.kinds.length === 0;
    const next = new Map([...known.value].slice(-KEPT));
    list.addresses.forEach(({ address, names, pending }, place) => {
      const asked = list.addresses.length === now.length ? now[place]! : address;
      const text = [...new Set(names.map((one) => one.name))].slice(0, 3).join(", ");
      next.set(asked, text);
      if (pending && (tries.get(asked) ?? 0) < TRIES) setTimeout(() => want(asked), PAUSE);
    });
    known.value = next;
  } catch {
    // Names are optional: after a failure addresses stay as they are, and a later view asks again.
    now.forEach((address) => tries.delete(address));
  }
  if (wanted.size > 0) plan();
}

const plan = () => (timer ??= setTimeout(() => void request(), 50));

function want(address: string) {
  tries.set(address, (tries.get(address) ?? 0) + 1);
  wanted.add(address);
  plan();
}

/** An address with its names, if they are known already. */
export function named(address: string): string {
  if (!isAddress(address)) return address;
  const names = known.value.get(address);
  if (names === undefined && !tries.has(address)) want(address);
  return names ? `${address} ${names}` : address;
}

/** Adds names to each address in a text, such as the label of a chart's line. */
export const namedWords = (text: string) => text.split(" ").map(named).join(" ");
