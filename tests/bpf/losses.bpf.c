// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Maps of twinprobe.h for four ports. */
#include <twinprobe.h>

#ifndef ROOM
#define ROOM 4
#endif

TP_HASH(windows, __u32, __u64, ROOM);
TP_HASH(sums, __u32, __u64, ROOM);
TP_HASH(live, __u32, __u64, ROOM);
TP_HASH(drained, __u32, __u64, ROOM);
TP_QUEUE(queue, __u32, ROOM);
/* A map that needs TP_COUNT_LOSSES. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct tp_prefix);
	__type(value, __u64);
	__uint(max_entries, ROOM);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} prefixes SEC(".maps");
TP_COUNT_LOSSES(prefixes);

#define COUNT(map, key)				\
	({					\
		__u64 *n = tp_get(map, key);	\
		if (n)				\
			tp_add(n, 1);		\
	})

TP_PROBE(losses, packet)
{
	struct tp_prefix prefix = { .bits = 128 };
	__u32 port;

	tp_parse(packet);
	port = packet->destination_port;
	prefix.address.word[3] = port;
	COUNT(windows, &port);
	COUNT(sums, &port);
	COUNT(live, &port);
	COUNT(drained, &port);
	COUNT(prefixes, &prefix);
	tp_push(queue, &port);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
