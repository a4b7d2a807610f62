/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Addresses and flow keys for both families. twinprobe.h has the overview. */
#ifndef TWINPROBE_FLOW_H
#define TWINPROBE_FLOW_H

/* An address in network order; IPv4 as ::ffff:a.b.c.d (RFC 4291). */
typedef struct {
	__be32 word[4];
} tp_ip TP_AS(ipv6);

/* A flow. Ports are numbers in the host's byte order; 0 where there are none. */
struct tp_flow {
	tp_ip source;
	tp_ip destination;
	__u16 source_port;
	__u16 destination_port;
	__u32 protocol TP_AS(protocol);
};

/* The key of an LPM map, shown as 10.0.0.0/8. An IPv4 prefix of n bits has 96 + n bits. */
struct tp_prefix {
	__u32 bits;
	tp_ip address;
} TP_AS(prefix);

struct tp_counters {
	__u64 packets;
	__u64 bytes;
};

enum tp_way {
	TP_FORTH = 1,
	TP_BACK = 2,
};

static __always_inline tp_ip tp_mapped(__be32 address)
{
	tp_ip mapped = { { 0, 0, bpf_htonl(0xffff), address } };

	return mapped;
}

static __always_inline int tp_addresses(const struct tp_packet *packet, tp_ip *source, tp_ip *destination)
{
	struct iphdr *ip = tp_ipv4(packet);
	struct ipv6hdr *ip6;

	if (ip) {
		*source = tp_mapped(ip->saddr);
		*destination = tp_mapped(ip->daddr);
		return 1;
	}
	ip6 = tp_ipv6(packet);
	if (!ip6)
		return 0;
	*source = *(tp_ip *)&ip6->saddr;
	*destination = *(tp_ip *)&ip6->daddr;
	return 1;
}

static __always_inline tp_ip tp_source(const struct tp_packet *packet)
{
	tp_ip source = {}, destination = {};

	tp_addresses(packet, &source, &destination);
	return source;
}

static __always_inline tp_ip tp_destination(const struct tp_packet *packet)
{
	tp_ip source = {}, destination = {};

	tp_addresses(packet, &source, &destination);
	return destination;
}

static __always_inline int tp_flow(const struct tp_packet *packet, struct tp_flow *flow)
{
	__builtin_memset(flow, 0, sizeof(*flow));
	if (!tp_addresses(packet, &flow->source, &flow->destination))
		return 0;
	flow->source_port = packet->source_port;
	flow->destination_port = packet->destination_port;
	flow->protocol = packet->protocol;
	return 1;
}

/* The order of two addresses: less than, equal to or greater than 0. Any fixed order will do. */
static __always_inline int tp_compare(const tp_ip *a, const tp_ip *b)
{
	int i;

#pragma unroll
	for (i = 3; i >= 0; i--) {
		if (a->word[i] != b->word[i])
			return a->word[i] < b->word[i] ? -1 : 1;
	}
	return 0;
}

static __always_inline enum tp_way tp_biflow(const struct tp_packet *packet, struct tp_flow *flow)
{
	int order;

	if (!tp_flow(packet, flow))
		return 0;
	order = tp_compare(&flow->source, &flow->destination);
	if (order < 0 || (order == 0 && flow->source_port <= flow->destination_port))
		return TP_FORTH;

	tp_ip address = flow->source;

	flow->source = flow->destination;
	flow->destination = address;
	flow->source_port = packet->destination_port;
	flow->destination_port = packet->source_port;
	return TP_BACK;
}

/* The first `bits` bits of an address; cheapest if constant. */
static __always_inline struct tp_prefix tp_prefix(tp_ip address, __u32 bits)
{
	struct tp_prefix prefix = { .bits = bits };
	__u32 i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		__u32 kept = bits <= 32 * i ? 0 : bits - 32 * i;

		if (kept >= 32)
			prefix.address.word[i] = address.word[i];
		else if (kept)
			prefix.address.word[i] = address.word[i] & bpf_htonl(0xffffffff << (32 - kept));
	}
	return prefix;
}

#endif
