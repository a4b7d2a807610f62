// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A value with a field of each meaning. Some add up, and others don't.
 *
 *	ENTRIES=n	entries of the maps
 *	LAYOUT=1	another order of the fields, and a new one
 */
#include <twinprobe.h>

#ifndef ENTRIES
#define ENTRIES 16
#endif
#ifndef LAYOUT
#define LAYOUT 0
#endif

/* Large: the sum of two exceeds 32 bits. */
#define WEIGHT 3000000000u

/* The items of an array have fields of their own. */
struct side {
	__u32 packets;
	__u16 peer_port;
	__u8 ttl;
	__u8 tcp_flags;
};

struct record {
#if LAYOUT
	__u64 new_one;
	__u32 weight;
#endif
	__u64 packets;
	__u64 first TP_AS(ktime);
	__u64 last TP_AS(ktime);
#if !LAYOUT
	__u32 weight;
#endif
	__u16 min_length;
	__u16 max_length;
	__u16 port TP_AS(be16);
	__u16 local_port;
	__u8 ttl;
	__u8 tcp_flags;
	__u8 options TP_AS(hex);
	struct side sides[2];
};

TP_HASH(hash, __u32, struct record, ENTRIES);
TP_PERCPU_HASH(each_cpu, __u32, struct record, ENTRIES);
TP_ARRAY(array, struct record, ENTRIES);

static __always_inline void count(struct record *record, __u32 length)
{
	if (!record)
		return;
	record->packets++;
	record->weight += WEIGHT;
	record->last = tp_now();
	if (!record->first)
		record->first = record->last;
	if (!record->min_length || record->min_length > length)
		record->min_length = length;
	if (record->max_length < length)
		record->max_length = length;
	record->port = bpf_htons(80);
	record->local_port = 443;
	record->ttl = 64;
	record->tcp_flags |= 0x10;
	record->options = 7;
	for (int i = 0; i < 2; i++) {
		record->sides[i].packets++;
		record->sides[i].peer_port = 443 + i;
		record->sides[i].ttl = 64;
		record->sides[i].tcp_flags |= 1 << i;
	}
}

TP_PROBE(meanings, packet)
{
	__u32 key = 0, length = tp_length(packet);

	count(tp_get(hash, &key), length);
	count(tp_get(each_cpu, &key), length);
	count(tp_at_index(array, 0), length);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
