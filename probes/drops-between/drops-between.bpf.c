// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * drops-between: counts packets that came in and did not go out, per conversation. Belongs on all interfaces between
 * which a host forwards. Both directions of all interfaces share one map.
 *
 *	CONVERSATIONS=n		entries of the map (default 2048)
 */
#define TP_LABELS 0
#include <twinprobe.h>

#ifndef CONVERSATIONS
#define CONVERSATIONS 2048
#endif

struct conversation {
	tp_ip source;
	tp_ip destination;
	__u32 protocol TP_AS(protocol);
};

struct passage {
	__u64 entered_packets_total;
	__u64 left_packets_total;
	__s64 missing_packets;	/* entered - left; below 0 if this host sends them */
};

TP_HASH(passages, struct conversation, struct passage, CONVERSATIONS);

TP_PROBE(count_passages, packet)
{
	struct conversation conversation = {};
	struct passage *passage;
	__u64 frames = tp_segments(packet);

	tp_parse(packet);
	if (!tp_addresses(packet, &conversation.source, &conversation.destination))
		return TP_PASS;
	conversation.protocol = packet->protocol;
	passage = tp_get(passages, &conversation);
	if (!passage)
		return TP_PASS;
	if (TP_IS_INGRESS) {
		tp_add(&passage->entered_packets_total, frames);
		tp_add(&passage->missing_packets, frames);
	} else {
		tp_add(&passage->left_packets_total, frames);
		tp_add(&passage->missing_packets, -frames);
	}
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
