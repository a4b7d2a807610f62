// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * port-scan: how many different ports and addresses each source tries.
 *
 *	SOURCES=n	sources at most; those that were silent the longest make room (default 4096)
 */
#include <twinprobe.h>

#ifndef SOURCES
#define SOURCES 4096
#endif

#define FLAG_SYN 0x02
#define FLAG_RST 0x04
#define FLAG_ACK 0x10
#define ECHO_REQUEST 8
#define ECHO_REQUEST_6 128

#define BYTES 32
#define BITS (BYTES * 8)

/*
 * Linear counting: each port and each address sets one of 256 bits, that of its hash. b set bits stand for about
 * -256 ln(1 - b / 256) different ones.
 */
struct set {
	__u32 different;	/* estimated */
	__u32 used;		/* bits that are set */
	__u8 bits[BYTES] TP_AS(hex);
};

struct source {
	__u64 tries;		/* packets that begin something */
	struct set ports;
	struct set addresses;
};

TP_LRU_HASH(sources, tp_ip, struct source, SOURCES);

static __always_inline void enter(struct set *set, __u64 hash)
{
	__u8 *byte = &set->bits[hash >> 3 & (BYTES - 1)];
	__u8 bit = 1 << (hash & 7);

	if (*byte & bit)
		return;
	*byte |= bit;
	set->used++;
	/* 256 ln(2) (8 - log2(256 - b)): logarithms are times 65536, and 11357 is 256 ln(2) times 64. */
	set->different = (((8 << 16) - tp_log2_fixed(BITS - set->used)) * 11357ULL + (1 << 21)) >> 22;
}

/* Packets that answer begin nothing: those of TCP have ACK or RST, those of UDP come from the lower port. */
static __always_inline int begins(const struct tp_packet *packet)
{
	if (!packet->l4)
		return 0;
	switch (packet->protocol) {
	case IPPROTO_TCP:
		return !(packet->tcp_flags & (FLAG_ACK | FLAG_RST));
	case IPPROTO_UDP:
		return packet->destination_port <= packet->source_port;
	case IPPROTO_ICMP:
		return packet->icmp_type == ECHO_REQUEST;
	case TP_ICMPV6:
		return packet->icmp_type == ECHO_REQUEST_6;
	}
	return 0;
}

TP_PROBE(watch_sources, packet)
{
	struct source *source;
	tp_ip address;

	tp_parse(packet);
	if (!begins(packet))
		return TP_PASS;
	address = tp_source(packet);
	source = tp_get(sources, &address);
	if (!source)
		return TP_PASS;
	tp_add(&source->tries, 1);
	address = tp_destination(packet);
	enter(&source->addresses, tp_hash(&address, sizeof(address), 0));
	if (packet->destination_port)
		enter(&source->ports, tp_mix(packet->destination_port));
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
