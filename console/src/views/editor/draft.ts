// The initial content of the editor.
import type { Config } from "../../api/types.ts";
import { configOf, library, WINDOW } from "../../data/library.ts";
import { probes } from "../../live/changes.ts";
import { interfaces, interfacesTold } from "../../live/traffic.ts";

export interface Draft {
  name: string;
  config: Config;
  /** The ETag of the edited probe; `null` for a new one. */
  tag: string | null;
}

const EMPTY = `#include <twinprobe.h>

/* One entry for each sender: packets and bytes. */
TP_HASH(senders, tp_ip, struct tp_counters, 1024);

TP_PROBE(count_senders, packet)
{
	tp_ip address;

	tp_parse(packet);
	if (!packet->version)
		return TP_PASS; /* neither IPv4 nor IPv6 */
	address = tp_source(packet);
	tp_count(senders, &address, tp_length(packet));
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
`;

/** A name that no probe has. */
function free(name: string): string {
  let found = name;
  for (let number = 2; probes.value.has(found); number += 1) found = `${name}-${number}`;
  return found;
}

/** The interface that the user most likely wants: the one with the most packets now. */
function busiest(): string {
  const real = interfaces.value.filter((one) => one.name !== "lo");
  return real.sort((a, b) => (b.packets ?? 0) - (a.packets ?? 0))[0]?.name ?? "";
}

/** A draft from a template, or with the name `empty` a small one to begin with. */
export async function draft(template: string): Promise<Draft> {
  await interfacesTold();
  const one = busiest();
  if (template === "empty") {
    const metrics = [{ name: "sender", map: "senders", help: "Packets and bytes received, by sender", snapshot: true, init: true }];
    return { name: free("senders"), config: { interfaces: one ? [one] : [], ingress: { hook: "xdp", source: EMPTY, metrics }, window: { ...WINDOW } }, tag: null };
  }
  const found = (await library()).find((entry) => entry.name === template);
  if (!found) throw new Error(`The library has no probe ${template}.`);
  return { name: free(template), config: configOf(found, one ? [one] : []), tag: null };
}
