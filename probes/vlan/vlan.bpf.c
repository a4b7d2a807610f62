// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * vlan: counts frames and bytes per VLAN and priority, with QinQ.
 *
 *	VLANS=n		entries at most (default 4096)
 */
#define TP_LABELS 0
#define TP_EXTENSIONS 0
#include <twinprobe.h>

#ifndef VLANS
#define VLANS 4096
#endif

struct vlan {
	__u8 tags;		/* 0, 1, or 2 for two or more */
	__u8 priority;		/* of the outer tag */
	__u16 vlan;		/* of the outer tag, 0 without one */
	__u16 inner_vlan;
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

TP_PERCPU_HASH(vlans, struct vlan, struct counters, VLANS);

TP_PROBE(count_vlans, packet)
{
	struct vlan vlan = {};

	TP_SEES(tags);
	tp_parse(packet);
	vlan.tags = packet->tags > 2 ? 2 : packet->tags;
	vlan.priority = packet->vlan[0] >> 13;
	vlan.vlan = packet->vlan[0] & 0xfff;
	vlan.inner_vlan = packet->vlan[1] & 0xfff;
	tp_count_frames(vlans, &vlan, tp_segments(packet), tp_length(packet));
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
