// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * fragments-ttl: counts fragments of IP packets, and packets by TTL. Finds sources whose TTL changes.
 *
 *	SOURCES=n	entries of the LRU map of sources (default 2048)
 */
#include <twinprobe.h>

#ifndef SOURCES
#define SOURCES 2048
#endif

#define DONT_FRAGMENT 0x4000

enum family {
	IPV4 = 4,
	IPV6 = 6,
};

enum fragment {
	WHOLE,		/* no fragment */
	WHOLE_DF,	/* no fragment, and DF forbids IPv4 routers to make any */
	FIRST,		/* first fragment with its transport header */
	FIRST_TINY,	/* first fragment with a cut transport header: hides ports from filters */
	LATER,
};

enum transport {
	ICMP = 1,
	TCP = 6,
	UDP = 17,
	GRE = 47,
	ESP = 50,
	ICMPV6 = 58,
	OSPF = 89,
	SCTP = 132,
};

struct kind {
	enum family family;
	enum fragment fragment;
	enum transport transport;
};

struct hops {
	enum family family;
	__u32 ttl;
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

struct source {
	__u64 packets;
	__u32 least;
	__u32 most;
};

TP_PERCPU_HASH(kinds, struct kind, struct counters, 2560);
TP_PERCPU_HASH(ttls, struct hops, __u64, 512);
TP_LRU_HASH(sources, tp_ip, struct source, SOURCES);

static __always_inline enum fragment fragment_of(const struct tp_packet *packet)
{
	struct iphdr *ip;

	if (packet->fragment == TP_LATER_FRAGMENT)
		return LATER;
	if (packet->fragment == TP_FIRST_FRAGMENT)
		return packet->l4 ? FIRST : FIRST_TINY;
	ip = tp_ipv4(packet);
	return ip && ip->frag_off & bpf_htons(DONT_FRAGMENT) ? WHOLE_DF : WHOLE;
}

TP_PROBE(count_fragments, packet)
{
	struct kind kind = {};
	struct hops hops = {};
	struct source *source;
	__u32 frames;
	tp_ip address;
	__u64 *count;

	tp_parse(packet);
	if (!packet->version)
		return TP_PASS;
	/* Opaque to the verifier, which then checks the code below once, not once for each path. */
	kind.family = tp_opaque(packet, packet->version);
	kind.fragment = tp_opaque(packet, fragment_of(packet));
	kind.transport = tp_opaque(packet, packet->protocol);
	frames = tp_segments(packet);
	tp_count_frames(kinds, &kind, frames, tp_length(packet));

	hops.family = kind.family;
	hops.ttl = tp_opaque(packet, packet->ttl);
	count = tp_get(ttls, &hops);
	if (count)
		*count += frames;

	address = tp_source(packet);
	source = tp_get(sources, &address);
	if (!source)
		return TP_PASS;
	if (!source->packets)
		source->least = hops.ttl;
	tp_min(&source->least, hops.ttl);
	tp_max(&source->most, hops.ttl);
	tp_add(&source->packets, frames);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
