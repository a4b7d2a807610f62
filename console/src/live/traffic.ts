// The traffic of interfaces, from the kernel's own counters, which the daemon sends with its changes.
import { computed, effect, signal } from "@preact/signals";
import type { Direction, Probe } from "../api/types.ts";

/** The packets and bytes that an interface has received or sent since its creation. */
interface Amount {
  packets: number;
  bytes: number;
  /** Earlier versions of the daemon do not send this. */
  dropped?: number;
}

/** The counters of an interface at one moment. */
export interface Counted {
  netns?: string;
  interface: string;
  ifindex: number;
  received: Amount;
  sent: Amount;
}

/** The rates per second. */
export interface Rate {
  packets: number;
  bytes: number;
  dropped: number;
}

export interface Moment {
  /** The time in seconds. */
  time: number;
  ingress: Rate;
  egress: Rate;
}

export interface Interface {
  id: string;
  netns?: string;
  name: string;
  ifindex: number;
  /** All bytes since the creation of the interface. */
  bytes: number;
  /** Oldest first; empty until there are two counts. */
  past: Moment[];
}

/** The number of rates that are kept for each interface: half an hour, with one rate every two seconds. */
const KEPT = 900;

export const placeOf = (netns: unknown, ifindex: number) => `${netns ?? ""} ${ifindex}`;

const all = signal<ReadonlyMap<string, Interface>>(new Map());
let before: { time: number; counted: Map<string, Counted> } | null = null;

/** All reported interfaces, those with the most bytes since their creation first. This order rarely changes. */
export const carriers = computed(() => [...all.value.values()].sort((a, b) => b.bytes - a.bytes));

export const newest = (one: Interface): Moment | undefined => one.past[one.past.length - 1];

/** The newest time by the clock of the daemon, in milliseconds: the browser's clock may differ. */
export const daemonTime = signal(0);

/** After a new connection the counters may come from another daemon, so no rate spans two connections. */
export const beginTraffic = () => (before = null);

export function takeTraffic(time: number, told: Counted[]) {
  const counted = new Map(told.map((one) => [placeOf(one.netns, one.ifindex), one]));
  const seconds = before ? (time - before.time) / 1000 : 0;
  const next = new Map<string, Interface>();
  for (const [id, now] of counted) {
    const then = before?.counted.get(id);
    const past = all.value.get(id)?.past ?? [];
    const rate = (of: (one: Counted) => Amount): Rate => {
      const per = (name: keyof Amount) => Math.max(0, (of(now)[name] ?? 0) - (of(then!)[name] ?? 0)) / seconds;
      return { packets: per("packets"), bytes: per("bytes"), dropped: per("dropped") };
    };
    const more = then && seconds > 0 ? [{ time: time / 1000, ingress: rate((one) => one.received), egress: rate((one) => one.sent) }] : [];
    const { netns, interface: name, ifindex } = now;
    next.set(id, { id, netns, name, ifindex, bytes: now.received.bytes + now.sent.bytes, past: [...past, ...more].slice(-KEPT) });
  }
  all.value = next;
  daemonTime.value = time;
  before = { time, counted };
}

/** The rates of an interface in both directions; `null` while they are not known. */
export function ratesOf(netns: unknown, ifindex: number): Moment | null {
  const found = all.value.get(placeOf(netns, ifindex));
  return (found && newest(found)) ?? null;
}

/** The packets per second that reach a probe; `null` while this is not known. */
export function rateOf(probe: Probe, direction?: Direction): Rate | null {
  const sum = { packets: 0, bytes: 0, dropped: 0 };
  let known = false;
  for (const at of probe.interfaces) {
    if (at.state !== "attached" || (direction && at.direction !== direction)) continue;
    const rate = ratesOf(probe.config.netns, at.ifindex!)?.[at.direction!];
    if (!rate) continue;
    known = true;
    sum.packets += rate.packets;
    sum.bytes += rate.bytes;
    sum.dropped += rate.dropped;
  }
  return known ? sum : null;
}

/** The interfaces of the daemon's own namespace that this credential may see, with their traffic. */
export const interfaces = computed(() =>
  [...all.value.values()]
    .filter((one) => !one.netns)
    .map((one) => {
      const now = newest(one);
      return { name: one.name, packets: now ? now.ingress.packets + now.egress.packets : null };
    }),
);

/** Waits until the daemon has reported interfaces, which it does shortly after the probes. */
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
