// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Stores all fields that twinprobe.h finds in a packet, by packet length. Works at all hooks. */
#include <twinprobe.h>

struct found {
	__u32 error, ether_type, tags, vlan0, vlan1, labels, label;
	__u32 version, protocol, tos, ttl, fragment, extensions, ip_length;
	__u32 source_port, destination_port, tcp_flags, icmp_type, icmp_code, payload_length;
	__u32 tunnel, tunnel_id, depth;
	__u32 l2, l3, srh, l4, payload;
	tp_ip source, destination;
};

struct bytes {
	__u64 copied;
	__u8 first[8], last[4];
};

TP_HASH(outside, __u32, struct found, 64);
TP_HASH(inside, __u32, struct found, 64);
TP_HASH(payloads, __u32, struct bytes, 64);
/* An entry has both directions. */
TP_HASH(talks, struct tp_flow, __u64, 64);
TP_PERCPU_HASH(few, __u32, struct tp_counters, 4);
TP_RINGBUF(ring, struct found, 4096);
/* No metric names these. */
TP_HASH(unnamed, __u32, __u64, 4);
TP_RINGBUF(unread, struct found, 4096);

static __always_inline void note(struct found *found, const struct tp_packet *packet)
{
	found->error = packet->error;
	found->ether_type = packet->ether_type;
	found->tags = packet->tags;
	found->vlan0 = packet->vlan[0];
	found->vlan1 = packet->vlan[1];
	found->labels = packet->labels;
	found->label = packet->label;
	found->version = packet->version;
	found->protocol = packet->protocol;
	found->tos = packet->tos;
	found->ttl = packet->ttl;
	found->fragment = packet->fragment;
	found->extensions = packet->extensions;
	found->ip_length = packet->ip_length;
	found->source_port = packet->source_port;
	found->destination_port = packet->destination_port;
	found->tcp_flags = packet->tcp_flags;
	found->icmp_type = packet->icmp_type;
	found->icmp_code = packet->icmp_code;
	found->payload_length = packet->payload_length;
	found->tunnel_id = packet->tunnel_id;
	found->depth = packet->depth;
	found->l2 = packet->l2;
	found->l3 = packet->l3;
	found->srh = packet->srh;
	found->l4 = packet->l4;
	found->payload = packet->payload;
	found->source = tp_source(packet);
	found->destination = tp_destination(packet);
}

TP_PROBE(header, packet)
{
	__u32 length = tp_length(packet), kind;
	struct tp_flow flow;
	struct found *found;

	tp_parse(packet);
	found = tp_get(outside, &length);
	if (found)
		note(found, packet);
	if (packet->payload) {
		struct bytes bytes = {};

		bytes.copied = tp_copy(packet, packet->payload, bytes.first, sizeof(bytes.first));
		tp_load(packet, packet->l3 + packet->ip_length - 4, &bytes.last);
		tp_update(payloads, &length, &bytes);
	}
	if (tp_biflow(packet, &flow)) {
		__u64 *count = tp_get(talks, &flow);

		if (count)
			tp_add(count, 1);
	}
	tp_count(few, &length, length);
	tp_get(unnamed, &length);
	found = tp_reserve(unread);
	if (found)
		tp_discard(found);
	found = tp_reserve(ring);
	if (found) {
		__builtin_memset(found, 0, sizeof(*found));
		tp_submit(found);
	}
	kind = tp_decapsulate(packet);
	if (kind) {
		found = tp_get(inside, &length);
		if (found) {
			note(found, packet);
			found->tunnel = kind;
		}
	}
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
