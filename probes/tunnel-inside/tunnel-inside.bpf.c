// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tunnel-inside: counts conversations inside tunnels (GRE, IP in IP, VXLAN, Geneve), and bytes per tunnel.
 *
 *	CONVERSATIONS=n		entries at most (default 16384)
 *	TUNNELS=n		tunnels at most (default 1024)
 */
#define TP_LABELS 0
#define TP_EXTENSIONS 2
#include <twinprobe.h>

#ifndef CONVERSATIONS
#define CONVERSATIONS 16384
#endif
#ifndef TUNNELS
#define TUNNELS 1024
#endif

enum kind {
	IPIP = TP_IPIP,
	GRE = TP_GRE,
	VXLAN = TP_VXLAN,
	GENEVE = TP_GENEVE,
};

struct tunnel {
	tp_ip source;
	tp_ip destination;
	enum kind kind;
	__u32 id;	/* VNI, or key of GRE */
};

struct conversation {
	tp_ip source;
	tp_ip destination;
	enum kind kind;
	__u32 id;
	__u32 protocol TP_AS(protocol);
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;	/* of whole frames */
};

struct tunnel_counters {
	__u64 packets_total;
	__u64 bytes_total;
	__u64 inner_bytes_total;	/* of the IP packets inside */
	__u64 not_ip_packets_total;	/* with no IP packet inside */
};

TP_HASH(tunnels, struct tunnel, struct tunnel_counters, TUNNELS);
TP_HASH(conversations, struct conversation, struct counters, CONVERSATIONS);

TP_PROBE(look_inside, packet)
{
	struct conversation conversation = {};
	struct tunnel_counters *counters;
	struct tunnel tunnel = {};
	__u32 length = tp_length(packet), frames = tp_segments(packet), headers;

	tp_parse(packet);
	if (!tp_addresses(packet, &tunnel.source, &tunnel.destination))
		return TP_PASS;
	tunnel.kind = (enum kind)tp_decapsulate(packet);
	if (!tunnel.kind)
		return TP_PASS;
	tunnel.id = packet->tunnel_id;
	counters = tp_count_frames(tunnels, &tunnel, frames, length);
	if (!counters)
		return TP_PASS;
	if (!tp_addresses(packet, &conversation.source, &conversation.destination)) {
		tp_add(&counters->not_ip_packets_total, frames);
		return TP_PASS;
	}
	/* A packet may stand for several frames. Each has the inner headers. */
	headers = packet->payload > packet->l3 ? packet->payload - packet->l3 : 0;
	tp_add(&counters->inner_bytes_total, packet->ip_length + (frames - 1) * headers);
	conversation.kind = tunnel.kind;
	conversation.id = tunnel.id;
	conversation.protocol = packet->protocol;
	tp_count_frames(conversations, &conversation, frames, length);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
