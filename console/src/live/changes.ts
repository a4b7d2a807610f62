// What the daemon tells by `GET /v1/changes`: the state of all probes, each closed window, the rates of interfaces.
import { batch, computed, effect, signal } from "@preact/signals";
import { asProblem, keepToken, type Problem, token } from "../api/client.ts";
import { messages } from "../api/stream.ts";
import type { Direction, Probe, Role, WindowEntry, WindowsStatus } from "../api/types.ts";

export interface Hello {
  node: string;
  version: string;
  who: string;
  role: Role;
}

/** What an interface has received and sent, since it is there, at one moment. */
interface Counted {
  netns?: string;
  interface: string;
  ifindex: number;
  received: { packets: number; bytes: number };
  sent: { packets: number; bytes: number };
}

export interface Rate {
  packets: number;
  bytes: number;
}

export type Connection = "connecting" | "live" | "lost" | "signed-out";

export const connection = signal<Connection>("connecting");
/** Why there is no connection, or why the credential was refused. */
export const trouble = signal<Problem | null>(null);
export const hello = signal<Hello | null>(null);
export const probes = signal<ReadonlyMap<string, Probe>>(new Map());
/** False until the daemon has told of all probes. */
export const listed = signal(false);

const rates = signal<ReadonlyMap<string, { ingress: Rate; egress: Rate }>>(new Map());

export type OnWindow = (probe: string, window: WindowEntry) => void;
const listeners = new Set<OnWindow>();

/** Calls back for each window that is closed. Returns how to end that. */
export function onWindow(listener: OnWindow): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const RANKS: Role[] = ["viewer", "collector", "operator", "admin"];

/** Whether the credential may do what needs this role. */
export function may(role: Role): boolean {
  return hello.value !== null && RANKS.indexOf(hello.value.role) >= RANKS.indexOf(role);
}

/** The interfaces of the daemon's own namespace that it tells this credential of, with what goes through them. */
export const interfaces = signal<{ name: string; packets: number | null }[]>([]);

/** Waits until the daemon has told of interfaces, as it does shortly after it has told of the probes. */
export function interfacesTold(): Promise<void> {
  return new Promise((resolve) => {
    const longest = setTimeout(resolve, 3000);
    const stop = effect(() => {
      if (interfaces.value.length === 0) return;
      clearTimeout(longest);
      resolve();
    });
    setTimeout(stop, 3000);
  });
}

const place = (netns: unknown, ifindex: number) => `${netns ?? ""} ${ifindex}`;

/** The packets per second that meet a probe; `null` while that is not known. */
export function rateOf(probe: Probe, direction?: Direction): Rate | null {
  const sum = { packets: 0, bytes: 0 };
  let known = false;
  for (const at of probe.interfaces) {
    if (at.state !== "attached" || (direction && at.direction !== direction)) continue;
    const rate = rates.value.get(place(probe.config.netns, at.ifindex!))?.[at.direction!];
    if (!rate) continue;
    known = true;
    sum.packets += rate.packets;
    sum.bytes += rate.bytes;
  }
  return known ? sum : null;
}

/** The packets per second of an interface, in both directions. */
export function ratesOf(netns: unknown, ifindex: number) {
  return rates.value.get(place(netns, ifindex)) ?? null;
}

let before: { time: number; counted: Map<string, Counted> } | null = null;

function traffic(time: number, all: Counted[]) {
  const counted = new Map(all.map((one) => [place(one.netns, one.ifindex), one]));
  if (before && time > before.time) {
    const seconds = (time - before.time) / 1000;
    const rate = (now: Rate, then: Rate) => ({
      packets: Math.max(0, now.packets - then.packets) / seconds,
      bytes: Math.max(0, now.bytes - then.bytes) / seconds,
    });
    const found = new Map<string, { ingress: Rate; egress: Rate }>();
    for (const [key, now] of counted) {
      const then = before.counted.get(key);
      if (then) found.set(key, { ingress: rate(now.received, then.received), egress: rate(now.sent, then.sent) });
    }
    rates.value = found;
  }
  before = { time, counted };
  interfaces.value = all
    .filter((one) => !one.netns)
    .map((one) => {
      const rate = rates.value.get(place(one.netns, one.ifindex));
      return { name: one.interface, packets: rate ? rate.ingress.packets + rate.egress.packets : null };
    });
}

/** The probes that the daemon has told of since the connection began. */
let fresh: Map<string, Probe> | null = null;

function put(probe: Probe) {
  if (fresh) fresh.set(probe.name, probe);
  else probes.value = new Map([...probes.value, [probe.name, probe]].sort(([a], [b]) => (a! < b! ? -1 : 1)) as never);
}

/** Puts the status that a request was answered with in place, before the daemon tells of it. */
export const putProbe = (probe: Probe) => put(probe);

function take(event: string, data: any) {
  switch (event) {
    case "hello":
      fresh = new Map();
      before = null;
      hello.value = data;
      break;
    case "probe":
      put(data);
      break;
    case "listed":
      batch(() => {
        probes.value = fresh ?? new Map();
        fresh = null;
        listed.value = true;
        connection.value = "live";
        trouble.value = null;
      });
      break;
    case "removed": {
      const rest = new Map(probes.value);
      rest.delete(data.probe);
      probes.value = rest;
      break;
    }
    case "window": {
      const { probe: name, window, windows } = data as { probe: string; window: WindowEntry; windows: WindowsStatus };
      const probe = probes.value.get(name);
      batch(() => {
        if (probe) put({ ...probe, windows });
        for (const listener of listeners) listener(name, window);
      });
      break;
    }
    case "traffic":
      traffic(Date.parse(data.time), data.interfaces);
      break;
    // Changes that this client was too slow for are missing: begin anew.
    case "missed":
      throw new Error("changes are missing");
  }
}

const LONGEST_PAUSE = 5000;
/** The time that the daemon may be silent: it says at least every 15 s that it is there. */
const SILENCE = 40_000;
/** A page that nobody sees gives its connection back after this time; browsers have six for a server. */
const HIDDEN = 60_000;

let current: AbortController | null = null;
let wake: (() => void) | null = null;
let pause = 250;

async function follow() {
  const control = (current = new AbortController());
  let timer = setTimeout(() => control.abort(), SILENCE);
  try {
    for await (const { event, data } of messages("/v1/changes", control.signal)) {
      clearTimeout(timer);
      timer = setTimeout(() => control.abort(), SILENCE);
      take(event, data);
      pause = 250;
    }
  } finally {
    clearTimeout(timer);
    fresh = null;
    control.abort();
  }
}

const visible = () =>
  new Promise<void>((resolve) => {
    if (!document.hidden) return resolve();
    document.addEventListener("visibilitychange", () => resolve(), { once: true });
  });

const sleep = (ms: number) => new Promise<void>((resolve) => {
  const timer = setTimeout(resolve, ms);
  wake = () => (clearTimeout(timer), resolve());
});

/** The token that a link has brought while another credential is in use. Anybody can make a link. */
export const offered = signal<string | null>(null);

/**
 * Takes the token that a link has brought (`/#token=...`), and takes it out of the address. What is behind `#` is sent to
 * nobody. Where another credential is in use, the token is only offered.
 */
function takeToken() {
  const text = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (!text) return;
  location.replace("#/");
  const brought = decodeURIComponent(text);
  if (brought === token.value) return;
  const isInUse = connection.value !== "signed-out" && (token.value !== null || hello.value !== null);
  if (isInUse) offered.value = brought;
  else exchange(brought);
}

function exchange(value: string) {
  current?.abort();
  signIn(value);
}

/** Ends the offer of a token: it replaces the credential that is in use, or is forgotten. */
export function answerOffer(isTaken: boolean) {
  const value = offered.value;
  offered.value = null;
  if (isTaken && value !== null) exchange(value);
}

/** Follows the daemon's changes as long as the page is open, through restarts of the daemon. */
export async function followChanges() {
  takeToken();
  addEventListener("hashchange", takeToken);
  let hidden: ReturnType<typeof setTimeout> | undefined;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(() => current?.abort(), HIDDEN);
    else wake?.();
  });
  for (;;) {
    await visible();
    try {
      await follow();
      connection.value = "lost";
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status === 401 || problem.status === 403) {
        await signedOut(problem);
        continue;
      }
      trouble.value = problem;
      connection.value = "lost";
    }
    await sleep(pause);
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

/** Waits until there is another token. */
function signedOut(problem: Problem): Promise<void> {
  batch(() => {
    trouble.value = problem;
    connection.value = "signed-out";
    hello.value = null;
    probes.value = new Map();
    listed.value = false;
  });
  return new Promise((resolve) => (wake = resolve));
}

/** Tries again at once. */
export function tryNow() {
  pause = 250;
  wake?.();
}

export function signIn(value: string) {
  keepToken(value);
  connection.value = "connecting";
  tryNow();
}

export function signOut() {
  offered.value = null;
  keepToken(null);
  current?.abort();
  connection.value = "connecting";
}

export const hasToken = computed(() => token.value !== null);
