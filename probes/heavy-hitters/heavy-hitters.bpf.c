// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * heavy-hitters: flows of more than so many bytes in a window, by a count-min sketch (Cormode and Muthukrishnan, 2005).
 *
 *	THRESHOLD=n	bytes in a window from which on a flow is listed (default 1000000)
 *	HEAVY=n		flows that are listed at most (default 4096)
 */
#include <twinprobe.h>

#ifndef THRESHOLD
#define THRESHOLD 1000000
#endif
#ifndef HEAVY
#define HEAVY 4096
#endif

#define ROWS 4
#define COLUMNS 1024

/*
 * Each flow adds its bytes to one counter of each row. The least of the four has the least of other flows in it. Two maps have
 * two rows each: a trial finds them half as costly as one map of 32 KiB, which the kernel allocates in scattered pages.
 */
struct sketch {
	__u64 bytes[ROWS / 2][COLUMNS];
};

TP_ARRAY(sketch, struct sketch, 1);
TP_ARRAY(sketch_2, struct sketch, 1);
TP_HASH(heavy, struct tp_flow, __u64, HEAVY);
TP_PERCPU_ARRAY(all, __u64, 1);

TP_PROBE(find_heavy, packet)
{
	__u64 hash, least = ~0ULL, length = tp_length(packet), *bytes = tp_at_index(all, 0);
	struct sketch *first = tp_at_index(sketch, 0), *second = tp_at_index(sketch_2, 0);
	__u64 *counters[ROWS];
	struct tp_flow flow;
	int row;

	tp_parse(packet);
	if (!bytes || !first || !second || !tp_flow(packet, &flow))
		return TP_PASS;
	*bytes += length;
	hash = tp_hash(&flow, sizeof(flow), 0);
#pragma unroll
	for (row = 0; row < ROWS; row++) {
		counters[row] = &(row % 2 ? second : first)->bytes[row / 2][hash >> 16 * row & (COLUMNS - 1)];
		tp_min(&least, *counters[row] + length);
	}
	/* Reads first: the processor waits for the memory of all four at once. An atomic addition waits for its own. */
#pragma unroll
	for (row = 0; row < ROWS; row++)
		tp_add(counters[row], length);
	if (least < THRESHOLD)
		return TP_PASS;
	bytes = tp_get(heavy, &flow);
	if (bytes)
		tp_max(bytes, least);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
