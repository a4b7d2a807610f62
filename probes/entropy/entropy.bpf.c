// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* entropy: measures how evenly packets spread over addresses and ports. */
#include <twinprobe.h>

#define BUCKETS 1024

/* Packets by the hash of one feature. `sum` is the sum of n log2(n) over the buckets, times 65536. */
struct spread {
	__u64 sum;
	__u32 buckets[BUCKETS];
};

struct spreads {
	__u64 packets;
	__u64 packets_with_ports;
	struct spread source;
	struct spread destination;
	struct spread source_port;
	struct spread destination_port;
};

struct entropy {
	__u64 packets;
	__u32 source_millibits;
	__u32 destination_millibits;
	__u32 source_port_millibits;
	__u32 destination_port_millibits;
};

TP_ARRAY(spreads, struct spreads, 1);
TP_ARRAY(entropies, struct entropy, 1);

/* Returns the entropy: log2(N) - 1/N sum(n log2(n)). `most` is log2(N). Atomic additions would double the cost. */
static __always_inline __u32 add(struct spread *spread, __u64 hash, __u64 packets, __u64 most)
{
	__u32 *bucket = &spread->buckets[hash & (BUCKETS - 1)];
	__u64 before = (*bucket)++, after = before + 1, mean;

	if (before)
		spread->sum += after * tp_log2_fixed(after) - before * tp_log2_fixed(before);
	mean = spread->sum / packets;
	return most > mean ? ((most - mean) * 1000 + 32768) >> 16 : 0;
}

TP_PROBE(measure_entropy, packet)
{
	struct spreads *of = tp_at_index(spreads, 0);
	struct entropy *entropy = tp_at_index(entropies, 0);
	__u64 packets, most;
	tp_ip address;

	/* A packet counts once even if it stands for several frames. */
	TP_SEES(packets);
	tp_parse(packet);
	if (!packet->version || !of || !entropy)
		return TP_PASS;
	packets = ++of->packets;
	most = tp_log2_fixed(packets);
	entropy->packets = packets;
	address = tp_source(packet);
	entropy->source_millibits = add(&of->source, tp_hash(&address, sizeof(address), 0), packets, most);
	address = tp_destination(packet);
	entropy->destination_millibits = add(&of->destination, tp_hash(&address, sizeof(address), 0), packets, most);
	if (!packet->l4 || !(packet->source_port | packet->destination_port))
		return TP_PASS;
	packets = ++of->packets_with_ports;
	most = tp_log2_fixed(packets);
	entropy->source_port_millibits = add(&of->source_port, tp_mix(packet->source_port), packets, most);
	entropy->destination_port_millibits = add(&of->destination_port, tp_mix(packet->destination_port), packets, most);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
