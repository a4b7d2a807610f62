// The headers of a packet in words, for events that carry its first bytes.

const PROTOCOLS: Record<number, string> = { 1: "ICMP", 2: "IGMP", 6: "TCP", 17: "UDP", 41: "IPv6", 47: "GRE", 50: "ESP", 51: "AH", 58: "ICMPv6", 89: "OSPF", 112: "VRRP", 132: "SCTP" };
const FLAGS = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
const ICMP: Record<number, string> = { 0: "echo reply", 3: "unreachable", 5: "redirect", 8: "echo request", 11: "time exceeded" };
const ICMPV6: Record<number, string> = { 1: "unreachable", 2: "packet too big", 3: "time exceeded", 128: "echo request", 129: "echo reply", 133: "router solicitation", 134: "router advertisement", 135: "neighbour solicitation", 136: "neighbour advertisement" };
const MAC = 14;
const TAGS = [0x8100, 0x88a8];
/** Extension headers of IPv6 that are skipped to find the next protocol. */
const EXTENSIONS = [0, 43, 60];

/** The bytes of a hexadecimal text; `null` if it is not hexadecimal or too short for the beginning of a frame. */
export function bytesOf(text: unknown): Uint8Array | null {
  const match = typeof text === "string" && /^(?:0x)?((?:[0-9a-f]{2}){34,})$/i.exec(text);
  return match ? Uint8Array.from(match[1]!.match(/../g)!, (pair) => Number.parseInt(pair, 16)) : null;
}

const ipv4 = (bytes: Uint8Array) => bytes.join(".");

/** An address with its longest run of zeros left out. */
function ipv6(bytes: Uint8Array): string {
  const groups = Array.from({ length: 8 }, (_, index) => ((bytes[2 * index]! << 8) | bytes[2 * index + 1]!).toString(16));
  const runs = [...groups.join(":").matchAll(/\b0(?::0\b)+/g)].sort((a, b) => b[0].length - a[0].length);
  if (!runs[0]) return groups.join(":");
  const text = groups.join(":");
  const [before, after] = [text.slice(0, runs[0].index).replace(/:$/, ""), text.slice(runs[0].index + runs[0][0].length).replace(/^:/, "")];
  return `${before}::${after}`;
}

class Reader {
  constructor(private data: Uint8Array) {}
  has = (end: number) => end <= this.data.length;
  u8 = (at: number) => this.data[at] ?? 0;
  u16 = (at: number) => (this.u8(at) << 8) | this.u8(at + 1);
  slice = (at: number, length: number) => this.data.slice(at, at + length);
}

function transport(read: Reader, at: number, protocol: number, from: string, to: string, isWide: boolean): string {
  const name = PROTOCOLS[protocol] ?? `protocol ${protocol}`;
  const host = (address: string, port: number) => (isWide ? `[${address}]:${port}` : `${address}:${port}`);
  const hasPorts = (protocol === 6 || protocol === 17 || protocol === 132) && read.has(at + 4);
  const ends = hasPorts ? `${host(from, read.u16(at))} → ${host(to, read.u16(at + 2))}` : `${from} → ${to}`;
  if (protocol === 6 && read.has(at + 14)) {
    const flags = FLAGS.filter((_, bit) => read.u8(at + 13) & (1 << bit));
    return `${name} ${ends} ${flags.join(" ") || "no flags"}`;
  }
  const types = protocol === 1 ? ICMP : protocol === 58 ? ICMPV6 : null;
  return types && read.has(at + 1) ? `${name} ${ends} ${types[read.u8(at)] ?? `type ${read.u8(at)}`}` : `${name} ${ends}`;
}

function overIpv4(read: Reader, at: number): string | null {
  const words = read.u8(at) & 15;
  if (read.u8(at) >> 4 !== 4 || words < 5 || !read.has(at + 20)) return null;
  const [from, to] = [ipv4(read.slice(at + 12, 4)), ipv4(read.slice(at + 16, 4))];
  const protocol = read.u8(at + 9);
  // A later fragment has no header of TCP, UDP or ICMP.
  if (read.u16(at + 6) & 0x1fff) return `${PROTOCOLS[protocol] ?? `protocol ${protocol}`} ${from} → ${to} fragment`;
  return transport(read, at + 4 * words, protocol, from, to, false);
}

function overIpv6(read: Reader, at: number): string | null {
  if (read.u8(at) >> 4 !== 6 || !read.has(at + 40)) return null;
  const [from, to] = [ipv6(read.slice(at + 8, 16)), ipv6(read.slice(at + 24, 16))];
  let [protocol, next] = [read.u8(at + 6), at + 40];
  while (EXTENSIONS.includes(protocol) && read.has(next + 2)) [protocol, next] = [read.u8(next), next + 8 * (read.u8(next + 1) + 1)];
  return transport(read, next, protocol, from, to, true);
}

/** The headers of a frame in one line; `null` if this module does not know the bytes. */
export function frameText(text: unknown): string | null {
  const bytes = bytesOf(text);
  if (!bytes) return null;
  const read = new Reader(bytes);
  const tags: string[] = [];
  let at = MAC - 2;
  for (; TAGS.includes(read.u16(at)) && read.has(at + 6); at += 4) tags.push(`VLAN ${read.u16(at + 2) & 0xfff} `);
  const kind = read.u16(at);
  const before = tags.join("");
  const inner = kind === 0x0800 ? overIpv4(read, at + 2) : kind === 0x86dd ? overIpv6(read, at + 2) : kind === 0x0806 ? arp(read, at + 2) : null;
  return inner === null ? null : before + inner;
}

function arp(read: Reader, at: number): string | null {
  if (!read.has(at + 28)) return null;
  const [sender, target] = [ipv4(read.slice(at + 14, 4)), ipv4(read.slice(at + 24, 4))];
  return read.u16(at + 6) === 1 ? `ARP who has ${target}, asks ${sender}` : `ARP ${sender} is here, to ${target}`;
}
