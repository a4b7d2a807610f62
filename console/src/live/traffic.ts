// What goes through interfaces, by the kernel's own counters, which the daemon tells of with its changes.
import { computed, effect, signal } from "@preact/signals";
import type { Direction, Probe } from "../api/types.ts";

/** What an interface has received or sent since it was made. */
interface Amount {
  packets: number;
  bytes: number;
  /** Absent from daemons before this one. */
  dropped?: number;
}

/** What an interface has counted, at one moment. */
export interface Counted {
  netns?: string;
  interface: string;
  ifindex: number;
  received: Amount;
  sent: Amount;
}

/** So much of it in a second. */
export interface Rate {
  packets: number;
  bytes: number;
  dropped: number;
}

export interface Moment {
  /** In seconds. */
  time: number;
  ingress: Rate;
  egress: Rate;
}

export interface Interface {
  id: string;
  netns?: string;
  name: string;
  ifindex: number;
  /** All bytes since it was made. */
  bytes: number;
  /** Oldest first; empty while it was counted once only. */
  past: Moment[];
}

/** The rates that are kept of each interface: five minutes, at one in two seconds. */
const KEPT = 150;

export const placeOf = (netns: unknown, ifindex: number) => `${netns ?? ""} ${ifindex}`;

const all = signal<ReadonlyMap<string, Interface>>(new Map());
let before: { time: number; counted: Map<string, Counted> } | null = null;

/** All interfaces that the daemon tells of, those that have carried most first. That order does not jump. */
export const carriers = computed(() => [...all.value.values()].sort((a, b) => b.bytes - a.bytes));

export const newest = (one: Interface): Moment | undefined => one.past[one.past.length - 1];

/** Counters of another connection may be those of another daemon: no rate goes from the one to the other. */
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
  before = { time, counted };
}

/** The rates of an interface in both directions; `null` while they are not known. */
export function ratesOf(netns: unknown, ifindex: number): Moment | null {
  const found = all.value.get(placeOf(netns, ifindex));
  return (found && newest(found)) ?? null;
}

/** What meets a probe in a second; `null` while that is not known. */
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

/** The interfaces of the daemon's own namespace that it tells this credential of, with what goes through them. */
export const interfaces = computed(() =>
  [...all.value.values()]
    .filter((one) => !one.netns)
    .map((one) => {
      const now = newest(one);
      return { name: one.name, packets: now ? now.ingress.packets + now.egress.packets : null };
    }),
);

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
