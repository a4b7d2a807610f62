// The messages of `GET /v1/changes`: the state of all probes, and each closed window.
import { batch, computed, signal } from "@preact/signals";
import { asProblem, keepToken, type Problem, token } from "../api/client.ts";
import { messages } from "../api/stream.ts";
import type { Probe, Role, WindowEntry, WindowsStatus } from "../api/types.ts";
import { beginTraffic, takeTraffic } from "./traffic.ts";

export interface Hello {
  node: string;
  version: string;
  who: string;
  role: Role;
  /** The server for charts beyond the retained windows, if the operator has named one. */
  history?: string;
  /** The number of other daemons that the operator has named. */
  nodes?: number;
}

export type Connection = "connecting" | "live" | "lost" | "signed-out";

export const connection = signal<Connection>("connecting");
/** The reason why there is no connection, or why the credential was refused. */
export const trouble = signal<Problem | null>(null);
export const hello = signal<Hello | null>(null);
export const probes = signal<ReadonlyMap<string, Probe>>(new Map());
/** False until the daemon has sent the state of all probes. */
export const listed = signal(false);

export type OnWindow = (probe: string, window: WindowEntry) => void;
const listeners = new Set<OnWindow>();

/** Calls back for each closed window. Returns a function that ends this. */
export function onWindow(listener: OnWindow): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const RANKS: Role[] = ["viewer", "collector", "operator", "admin"];

/** True if the credential has this role or a higher one. */
export function may(role: Role): boolean {
  return hello.value !== null && RANKS.indexOf(hello.value.role) >= RANKS.indexOf(role);
}

/** The probes that the daemon has reported since the connection began. */
let fresh: Map<string, Probe> | null = null;

function put(probe: Probe) {
  if (fresh) fresh.set(probe.name, probe);
  else probes.value = new Map([...probes.value, [probe.name, probe]].sort(([a], [b]) => (a! < b! ? -1 : 1)) as never);
}

/** Shows the status from the answer to a request, before the daemon's stream reports it. */
export const putProbe = (probe: Probe) => put(probe);

function take(event: string, data: any) {
  switch (event) {
    case "hello":
      fresh = new Map();
      beginTraffic();
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
      const { probe: name, window, windows } = data as { probe: string; window: WindowEntry; windows?: WindowsStatus };
      const probe = probes.value.get(name);
      batch(() => {
        // The message about the last window of a removed probe has no `windows`.
        if (probe && windows) put({ ...probe, windows });
        for (const listener of listeners) listener(name, window);
      });
      break;
    }
    case "traffic":
      takeTraffic(Date.parse(data.time), data.interfaces);
      break;
    // This client was too slow and has missed changes: start again.
    case "missed":
      throw new Error("changes are missing");
  }
}

const LONGEST_PAUSE = 5000;
/** The longest silence of a healthy connection: the daemon sends something at least every 15 s. */
const SILENCE = 40_000;
/** A hidden page closes its connection after this time, because browsers allow six connections to a server. */
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

/** The token from a link, while another credential is in use. It is only offered, because anybody can make a link. */
export const offered = signal<string | null>(null);

/**
 * Takes the token from a link (`/#token=...`) and removes it from the address. Browsers do not send the text after `#`.
 * If another credential is in use, the token is only offered.
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

/** Ends the offer of a token: the token replaces the credential in use, or is forgotten. */
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

/** Tries again immediately. */
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
