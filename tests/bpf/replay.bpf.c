/* Records each packet as the program sees it. XDP, or TC if TC is defined. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct packet {
	__u64 at;
	__u32 length;
	__u32 protocol;	/* of the skb, TC only */
	__u32 tag;	/* TC only */
	__u32 type;	/* TC only; XDP with GROW: 1 if there was no room */
	__u16 ether_type;
	__u8 last;
};

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 4096);
	__type(value, struct packet);
} packets SEC(".maps");

/* Reads the clock in a function, in a loop and after jumps in both directions, over loads and calls. */
static __noinline __u64 clock_of(__u32 length)
{
	__u64 first = bpf_ktime_get_ns(), sum = 0;

	for (__u32 i = 0; i < (length & 7); i++) {
		if (i & 1)
			sum += bpf_ktime_get_boot_ns() - first;
		else
			sum += bpf_ktime_get_ns() - first;
	}
	/* The clock of a replay stands still in a run. */
	return sum ? 0 : first;
}

#ifdef TC
SEC("tc") int see(struct __sk_buff *skb)
{
	struct packet packet = {
		.at = clock_of(skb->len),
		.length = skb->len,
		.protocol = __builtin_bswap16(skb->protocol),
		.tag = skb->vlan_present ? skb->vlan_tci : 0,
		.type = skb->pkt_type,
	};

	bpf_skb_load_bytes(skb, 12, &packet.ether_type, 2);
	bpf_skb_load_bytes(skb, skb->len - 1, &packet.last, 1);
	packet.ether_type = __builtin_bswap16(packet.ether_type);
	bpf_map_push_elem(&packets, &packet, 0);
	return 0;
}
#else
SEC("xdp") int see(struct xdp_md *xdp)
{
	__u32 length = bpf_xdp_get_buff_len(xdp);
	struct packet packet = { .at = clock_of(length), .length = length };

	bpf_xdp_load_bytes(xdp, 12, &packet.ether_type, 2);
	bpf_xdp_load_bytes(xdp, length - 1, &packet.last, 1);
	packet.ether_type = __builtin_bswap16(packet.ether_type);
#ifdef GROW
	/* A packet has this much headroom, but not twice as much. */
	packet.type = bpf_xdp_adjust_head(xdp, -150) ? 1 : 0;
#endif
	bpf_map_push_elem(&packets, &packet, 0);
	return XDP_DROP;
}
#endif

char LICENSE[] SEC("license") = "GPL";
