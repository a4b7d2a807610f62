// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * conntrack-marks: counts packets and bytes per mark that the firewall restores from conntrack. TC only.
 *
 *	MASK=n		bits of the mark to look at (default all)
 *	MARKS=n		entries of the map (default 1024)
 */
#include <twinprobe.h>

#ifndef MASK
#define MASK 0xffffffff
#endif
#ifndef MARKS
#define MARKS 1024
#endif

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

struct marked {
	__u32 mark TP_AS(hex);
};

TP_PERCPU_HASH(marks, struct marked, struct counters, MARKS);

TP_PROBE(count_marks, packet)
{
	struct marked marked = { .mark = tp_mark(packet) & MASK };

	tp_count_frames(marks, &marked, tp_segments(packet), tp_length(packet));
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
