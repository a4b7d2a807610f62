// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A TC filter of another owner. It records each packet with its metadata.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct packet {
	__u32 length, mark, priority, type, queue, index, protocol, vlan, class;
	__u8 head[96];
};

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 64);
	__type(value, struct packet);
} seen SEC(".maps");

SEC("classifier") int witness(struct __sk_buff *skb)
{
	struct packet packet = {
		.length = skb->len,
		.mark = skb->mark,
		.priority = skb->priority,
		.type = skb->pkt_type,
		.queue = skb->queue_mapping,
		.index = skb->tc_index,
		.protocol = skb->protocol,
		.vlan = skb->vlan_present << 16 | skb->vlan_tci,
		.class = skb->tc_classid,
	};

	if (skb->len >= sizeof(packet.head))
		bpf_skb_load_bytes(skb, 0, packet.head, sizeof(packet.head));
	bpf_map_push_elem(&seen, &packet, 0);
	return -1;
}

char LICENSE[] SEC("license") = "GPL";
