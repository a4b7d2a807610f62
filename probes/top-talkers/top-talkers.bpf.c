// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * top-talkers: counts packets and bytes per address.
 *
 *	TALKERS=n	entries of the LRU map of addresses (default 4096)
 *	LOCAL=1		counts the local address (destination at ingress, source at egress) instead of the remote one
 */
#define TP_EXTENSIONS 0
#include <twinprobe.h>

#ifndef TALKERS
#define TALKERS 4096
#endif
#ifndef LOCAL
#define LOCAL 0
#endif

struct talker {
	__u64 packets;
	__u64 bytes;
	__u64 first TP_AS(ktime);
	__u64 last TP_AS(ktime);
};

struct counters {
	__u64 packets;
	__u64 bytes;
};

TP_LRU_HASH(talkers, tp_ip, struct talker, TALKERS);
TP_PERCPU_ARRAY(traffic, struct counters, 1);

TP_PROBE(count_talkers, packet)
{
	__u32 length = tp_length(packet), frames = tp_segments(packet);
	struct counters *all = tp_at_index(traffic, 0);
	struct talker *talker;
	tp_ip address;

	tp_parse(packet);
	if (!packet->version || !all)
		return TP_PASS;
	all->packets += frames;
	all->bytes += length;
	address = TP_IS_INGRESS == LOCAL ? tp_destination(packet) : tp_source(packet);
	talker = tp_count_frames(talkers, &address, frames, length);
	if (talker) {
		talker->last = tp_now();
		if (!talker->first)
			talker->first = talker->last;
	}
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
