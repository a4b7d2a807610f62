// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * prefix-bytes: counts packets and bytes per network, by the longest matching prefix.
 *
 *	NETWORKS	networks, separated by spaces: V4(a,b,c,d, bits) and V6(group1,group2,group3,group4, bits) with
 *			the first four groups in hexadecimal. Default: kinds of addresses (private, multicast, ...)
 *	LOCAL=1		counts the local address (destination at ingress, source at egress) instead of the remote one
 *
 * The program fills the trie at its first packet.
 */
#include <twinprobe.h>

#ifndef LOCAL
#define LOCAL 0
#endif

#ifndef NETWORKS
#define NETWORKS							\
	V4(10,0,0,0, 8) V4(100,64,0,0, 10) V4(127,0,0,0, 8)		\
	V4(169,254,0,0, 16) V4(172,16,0,0, 12) V4(192,168,0,0, 16)	\
	V4(224,0,0,0, 4) V4(255,255,255,255, 32)			\
	V6(2000,0,0,0, 3) V6(fc00,0,0,0, 7) V6(fe80,0,0,0, 10) V6(ff00,0,0,0, 8)
#endif

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

/* Both twins share these two: no metric reads them. */
TP_LPM(networks, struct tp_prefix, 1024);
TP_ARRAY(filled, __u32, 1);
TP_PERCPU_HASH(traffic, struct tp_prefix, struct counters, 1026);

static __always_inline void add(tp_ip address, __u32 bits)
{
	struct tp_prefix prefix = tp_prefix(address, bits);

	tp_update(networks, &prefix, &prefix);
}

static __noinline int fill(void)
{
	tp_ip any = {};

	add(any, 0);
	add(tp_mapped(0), 96);
#define V4(a, b, c, d, bits) \
	add(tp_mapped(bpf_htonl((a##u) << 24 | (b##u) << 16 | (c##u) << 8 | (d##u))), bits + 96);
#define V6(a, b, c, d, bits) \
	{ tp_ip ip = { { bpf_htonl(0x##a##u << 16 | 0x##b##u), bpf_htonl(0x##c##u << 16 | 0x##d##u) } }; add(ip, bits); }
	NETWORKS
	return 0;
}

TP_PROBE(count_networks, packet)
{
	__u32 *done = tp_at_index(filled, 0);
	struct tp_prefix *network;
	struct tp_prefix prefix = { .bits = 128 };

	if (!done)
		return TP_PASS;
	/* Two CPUs may fill the trie at once, with the same entries. */
	if (!*done) {
		fill();
		*done = 1;
	}
	tp_parse(packet);
	if (!packet->version)
		return TP_PASS;
	prefix.address = TP_IS_INGRESS == LOCAL ? tp_destination(packet) : tp_source(packet);
	network = tp_find(networks, &prefix);
	if (network)
		tp_count_frames(traffic, network, tp_segments(packet), tp_length(packet));
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
