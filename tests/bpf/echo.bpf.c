// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts UDP packets to the echo port at the ingress (XDP), and from it at the egress (TC).
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ECHO 7

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} packets SEC(".maps");

static __always_inline const struct udphdr *udp(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5)
		return 0;
	return ip->protocol == IPPROTO_UDP ? udp : 0;
}

static __always_inline void count(void)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&packets, &key);

	if (value)
		*value += 1;
}

#ifdef INGRESS
SEC("xdp") int requests(struct xdp_md *ctx)
{
	const struct udphdr *header = udp((void *)(long)ctx->data, (void *)(long)ctx->data_end);

	if (header && header->dest == bpf_htons(ECHO))
		count();
	return XDP_PASS;
}
#else
SEC("tc") int replies(struct __sk_buff *ctx)
{
	const struct udphdr *header;

	bpf_skb_pull_data(ctx, sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr));
	header = udp((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	if (header && header->source == bpf_htons(ECHO))
		count();
	return 0;
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
