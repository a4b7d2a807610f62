// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * srv6: counts packets per segment of SRv6 paths (RFC 8754), and invalid segment routing headers.
 *
 *	SEGMENTS=n	entries of the map (default 4096)
 */
#define TP_LABELS 0
#include <twinprobe.h>

#ifndef SEGMENTS
#define SEGMENTS 4096
#endif

#define ROUTING_SEGMENTS 4

struct routing_header {
	__u8 next;
	__u8 length;	/* in units of 8 bytes, without the first 8 */
	__u8 type;
	__u8 segments_left;
	__u8 last_entry;	/* index of the last list element, the first segment of the path */
	__u8 flags;
	__be16 tag;
};

struct segment {
	tp_ip active;		/* the segment that the packet travels to */
	tp_ip final;		/* the last segment of the path */
	__u32 segments_left;	/* segments after the active one */
	__u32 inside TP_AS(protocol);	/* after extension headers; IPIP, IPV6, ETHERNET: a packet inside */
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

enum verdict {
	VALID,
	OTHER_TYPE,		/* a routing header of another kind */
	CUT_OFF,
	LIST_TOO_LONG,		/* the list does not fit into the header */
	LEFT_BEYOND_LIST,	/* more segments are left than the list has */
};

TP_HASH(segments, struct segment, struct counters, SEGMENTS);
TP_PERCPU_HASH(headers, enum verdict, __u64, 16);

static __always_inline enum verdict judge(const struct tp_packet *packet, struct routing_header **found)
{
	struct routing_header *header = tp_at(packet, packet->srh, sizeof(*header));

	*found = header;
	if (!header)
		return CUT_OFF;
	if (header->type != ROUTING_SEGMENTS)
		return OTHER_TYPE;
	if ((header->last_entry + 1) * 2 > header->length)
		return LIST_TOO_LONG;
	/* A reduced header omits the first segment, which is the first destination. */
	if (header->segments_left > header->last_entry + 1)
		return LEFT_BEYOND_LIST;
	return VALID;
}

TP_PROBE(follow_segments, packet)
{
	struct routing_header *header;
	struct segment segment = {};
	enum verdict verdict;
	struct ipv6hdr *ip;
	__u64 *count;
	tp_ip *list;

	tp_parse(packet);
	if (!packet->srh)
		return TP_PASS;
	verdict = judge(packet, &header);
	list = tp_at(packet, packet->srh + sizeof(*header), sizeof(*list));
	ip = tp_ipv6(packet);
	if (verdict == VALID && (!list || !ip))
		verdict = CUT_OFF;
	count = tp_get(headers, &verdict);
	if (count)
		*count += tp_segments(packet);
	if (verdict != VALID || !header || !list || !ip)
		return TP_PASS;
	segment.active = *(tp_ip *)&ip->daddr;
	segment.final = *list;
	segment.segments_left = header->segments_left;
	segment.inside = packet->protocol;
	tp_count_frames(segments, &segment, tp_segments(packet), tp_length(packet));
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
