/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * twinprobe.h: one source for XDP and TC, in both directions.
 *
 *	#include <twinprobe.h>
 *
 *	TP_HASH(flows, struct tp_flow, struct tp_counters, 65536);
 *
 *	TP_PROBE(flow_counter, packet)
 *	{
 *		struct tp_flow flow;
 *
 *		tp_parse(packet);
 *		if (tp_flow(packet, &flow))
 *			tp_count_frames(flows, &flow, tp_segments(packet), tp_length(packet));
 *		return TP_PASS;
 *	}
 *
 *	char LICENSE[] SEC("license") = "Dual BSD/GPL";
 *
 * The daemon defines the hook by TWINPROBE_XDP or TWINPROBE_TC, and by TWINPROBE_INGRESS or TWINPROBE_EGRESS. Without
 * these macros the hook is XDP ingress. At XDP, TP_PROBE is a program for packets of several buffers: SEC("xdp.frags").
 * With TWINPROBE_SINGLE_BUFFER it is one for packets of a single buffer: SEC("xdp"). The daemon defines this macro
 * before Linux 5.18, which has no others. Define it yourself if the probe runs beside programs for a single buffer.
 *
 * Macros that you may define before the #include, with defaults:
 *	TP_TAGS 2		VLAN tags that are parsed, at most
 *	TP_LABELS 4		MPLS labels; 0 leaves the code out
 *	TP_EXTENSIONS 8		IPv6 extension headers; 0 leaves the code out
 *	TP_HEADERS 256		bytes that become linear at TC if headers are not linear
 *
 * The entry point
 *	TP_PROBE(NAME, PACKET) { ... }	PACKET is a struct tp_packet *; the body returns TP_PASS or TP_DROP (TP_DROP only
 *					has an effect with "verdict": "enforce")
 *	TP_IS_XDP, TP_IS_INGRESS	1 or 0, known when compiling
 *
 * The packet, before it is parsed
 *	tp_length(packet)	bytes of all its frames on the wire, with VLAN tags, without frame check sequence
 *	tp_segments(packet)	frames on the wire that the packet stands for (segmentation offload at TC); 1 at XDP
 *	tp_frame_length(packet)	bytes of each of these frames but the last, which may be shorter
 *	tp_ifindex(packet)	the interface's index; show it with TP_AS(ifindex)
 *	tp_mark(packet)		the packet's mark (TC); 0 at XDP
 *	tp_now()		nanoseconds since boot, monotonic; show them with TP_AS(ktime)
 *	tp_context(packet)	the struct xdp_md * or struct __sk_buff *
 *
 * Parsing: twinprobe/parse.h, with the fields of struct tp_packet
 *	tp_parse(packet)	Ethernet, VLAN and QinQ, MPLS, IPv4, IPv6 with extension headers, TCP, UDP, UDP-Lite, DCCP, SCTP,
 *				ICMP, ICMPv6. Fields of layers that are not there are 0. Unread fields cost nothing.
 *	tp_decapsulate(packet)	enters the packet inside GRE, IP in IP, VXLAN or Geneve and parses it; returns the kind of
 *				tunnel. Without a tunnel it changes nothing and returns TP_NO_TUNNEL. You may call it again.
 *	tp_ethernet(packet), tp_ipv4(packet), tp_ipv6(packet), tp_tcp(packet), tp_udp(packet), tp_icmp(packet), tp_arp(packet)
 *				the header (read-only) or NULL. tp_parse and tp_decapsulate make the pointer invalid.
 *	tp_flow(packet, &flow)	fills in a struct tp_flow; returns 0 if the packet is not an IP packet
 *	tp_biflow(packet, &flow)	the same key for both ways of a conversation; returns 0 if the packet is not an IP
 *				packet, TP_FORTH if its source is flow.source, TP_BACK if its source is flow.destination
 *	tp_source(packet), tp_destination(packet)	the address as a tp_ip; zeros if the packet is not an IP packet
 *
 * Payload and other bytes; OFFSET counts from the start of the frame, as packet->l3, ->l4, ->payload and ->srh do
 *	tp_at(packet, offset, SIZE)	a pointer to SIZE (a constant) bytes in the linear part of the packet, or NULL
 *	tp_load(packet, offset, &value)	copies sizeof(value) bytes of any part of the packet; returns 1, or 0 past its end
 *	tp_copy(packet, offset, buffer, SIZE)	copies up to SIZE (a constant, at most 1024) bytes and zeroes the rest of the
 *				buffer; returns the number of copied bytes. The buffer may be on the stack, in a map or in a record.
 *
 * Maps: twinprobe/maps.h. Any map with __type(key, ...) and __type(value, ...) works. These macros define a map and the
 * counter of its losses. Failed inserts are counted and shown as `completeness` of the map's metrics.
 *	TP_HASH, TP_LRU_HASH, TP_PERCPU_HASH, TP_LRU_PERCPU_HASH(NAME, KEY, VALUE, ENTRIES)
 *	TP_LPM(NAME, VALUE, ENTRIES)	by struct tp_prefix
 *	TP_ARRAY, TP_PERCPU_ARRAY(NAME, VALUE, ENTRIES)	by __u32
 *	TP_QUEUE(NAME, VALUE, ENTRIES)
 *	TP_COUNT_LOSSES(NAME)	counts losses of a map that was defined by hand
 *	tp_get(NAME, &key)	a pointer to the value; inserts zeros for a missing key; NULL if there was no room
 *	tp_find(NAME, &key)	a pointer to the value, or NULL
 *	tp_at_index(NAME, i)	a pointer to a value of an array, or NULL
 *	tp_update(NAME, &key, &value)	inserts or overwrites; returns 1, or 0 if there was no room
 *	tp_insert(NAME, &key, &value)	returns 1 if it inserted, 0 if the key exists or there was no room
 *	tp_push(NAME, &value)	returns 1, or 0 if the queue is full
 *	tp_remove(NAME, &key)
 *	tp_count_frames(NAME, &key, frames, bytes)	adds both to a value that begins with a struct tp_counters; returns its
 *				pointer or NULL. tp_segments(packet) and tp_length(packet) give the numbers on the wire.
 *	tp_count(NAME, &key, bytes)	adds 1 and the bytes: at TC a packet that stands for several frames counts once
 *	tp_add(&number, n)	adds atomically; only for 4 and 8 bytes
 *	tp_max(&number, n), tp_min(&number, n)	not atomic: for PERCPU maps, or where a lost update does no harm
 *
 * Histograms
 *	TP_HISTOGRAM(NAME)		PERCPU_ARRAY of 64 numbers; slot i counts values from 2^i to 2^(i+1)-1, slot 0 also zeros
 *	tp_histogram(NAME, value), tp_histogram_add(NAME, value, n)
 *	TP_HISTOGRAM_SUM(NAME)		the same, and NAME_sum with the sum of the values. A metric METRIC_sum of that map
 *					gives the histogram METRIC its _count and _sum in Prometheus
 *	tp_histogram_sum(NAME, value), tp_histogram_sum_add(NAME, value, n)
 *	TP_LINEAR(NAME, SLOTS)		PERCPU_ARRAY of SLOTS numbers
 *	tp_linear(NAME, value, WIDTH)	slot value / WIDTH; the last slot counts all larger ones
 *
 * Sampling
 *	tp_sample(n)			1 for one packet in n, at random
 *	TP_RESERVOIR(NAME, TYPE, SIZE)	a uniform sample of SIZE items. Index 0 counts all items in `seen`. From
 *					index 1 on, `item` is a sampled item, and `seen` its number
 *	tp_reservoir(NAME)		a pointer to the place for the next item (a TYPE), or NULL to leave it out
 *
 * Ring buffers
 *	TP_RINGBUF(NAME, TYPE, BYTES)	BYTES is a power of two times the page size; "type" of the metric is the C name of TYPE
 *	tp_reserve(NAME)		a pointer to a record (a TYPE), or NULL; fill all of it. Failed reserves are counted
 *	tp_submit(record), tp_discard(record)
 *
 * Scratch memory, for data that is too large for the stack (512 bytes) or has a variable index
 *	TP_SCRATCH(NAME, TYPE), tp_scratch(NAME)	one TYPE for each CPU, with data of the packet before
 *
 * Numbers: twinprobe/numbers.h
 *	tp_log2(n)		the highest bit of n, 0 to 63; 0 for 0
 *	tp_log2_fixed(n)	log2(n) times 65536, at most 66 off; 0 for 0
 *	tp_hash(&key, SIZE, seed)	64 well-mixed bits of SIZE (a constant) bytes; other seeds give independent hashes
 *	tp_mix(n)		64 well-mixed bits of a number
 *	tp_scale(bits32, n)	a number below n from 32 random bits
 *
 * Notes about the numbers, from which the daemon knows where offloads make them approximate (docs/exactness.md). The
 * functions above add notes by themselves. A probe adds its own for fields and times that it uses without them:
 *	TP_SEES(tags)		packet->tags or packet->vlan, in a function
 *	TP_SEES(packets)	single packets: their times, order or samples
 *
 * Renderings: TP_AS(ipv4), TP_AS(mac), TP_AS(be16), TP_AS(ktime), TP_AS(ifindex), TP_AS(protocol),
 * TP_AS(tcp_flags), TP_AS(hex), ... after a field's name.
 * TP_AS(ie("tcpWindowSize")) says which element of IPFIX a field is for collectors of flows.
 * A tp_ip is shown as an address without TP_AS, IPv4 as 192.0.2.1.
 *
 * Rules that keep programs loadable from Linux 5.10 on:
 *  - ask tp_at for constant sizes; for a variable index, copy the bytes to scratch memory and mask the index
 *    (scratch->bytes[i & 511]);
 *  - don't use the result of an atomic operation (5.12);
 *  - loops need a constant bound;
 *  - keep values on the stack small: tp_get puts a zeroed value there.
 */
#ifndef TWINPROBE_H
#define TWINPROBE_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <twinprobe/packet.h>
#include <twinprobe/segments.h>
#include <twinprobe/numbers.h>
#include <twinprobe/parse.h>
#include <twinprobe/tunnel.h>
#include <twinprobe/flow.h>
#include <twinprobe/maps.h>
#include <twinprobe/sampling.h>

#endif
