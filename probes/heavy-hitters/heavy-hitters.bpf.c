// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * heavy-hitters: finds flows with at least THRESHOLD bytes in a window, by a count-min sketch.
 *
 *	THRESHOLD=n	fewest bytes of a listed flow in a window (default 1000000)
 *	HEAVY=n		entries of the map of listed flows (default 4096)
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
 * Each flow adds its bytes to one counter of each row. The smallest of the four counters has the fewest bytes of other
 * flows. Two maps have two rows each: in a trial they cost half as much as one map of 32 KiB with scattered pages.
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
	/* Follows the reads, which load the memory of all counters at once. Each atomic addition would wait alone. */
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
