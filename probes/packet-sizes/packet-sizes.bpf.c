// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* packet-sizes: counts frames by length, in powers of two and in the classes of RMON. */
#define TP_LABELS 0
#define TP_EXTENSIONS 0
#include <twinprobe.h>

/* RMON (RFC 2819) counts the 4 bytes of the check sequence. Programs don't see them: 64 is 60 here. */
enum size_class {
	UP_TO_60,
	FROM_61_TO_123,
	FROM_124_TO_251,
	FROM_252_TO_507,
	FROM_508_TO_1019,
	FROM_1020_TO_1514,
	ABOVE_1514,
};

enum family {
	NOT_IP = 0,
	IPV4 = 4,
	IPV6 = 6,
};

struct class {
	enum family family;
	enum size_class size;
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

TP_HISTOGRAM_SUM(sizes);
TP_PERCPU_HASH(classes, struct class, struct counters, 32);

static __always_inline enum size_class size_class(__u32 length)
{
	return (length > 60) + (length > 123) + (length > 251) + (length > 507) + (length > 1019) + (length > 1514);
}

TP_PROBE(measure_sizes, packet)
{
	__u32 length = tp_length(packet), frames = tp_segments(packet), full;
	struct class class = {};

	tp_parse(packet);
	class.family = packet->version;
	/* All frames of a packet have the same length, but the last may be shorter. */
	if (frames > 1) {
		frames--;
		full = tp_frame_length(packet);
		class.size = size_class(full);
		tp_histogram_sum_add(sizes, full, frames);
		tp_count_frames(classes, &class, frames, frames * full);
		length -= frames * full;
	}
	length = tp_opaque(packet, length);
	class.size = size_class(length);
	tp_histogram_sum(sizes, length);
	tp_count_frames(classes, &class, 1, length);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
