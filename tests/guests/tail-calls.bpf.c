// XDP: programs that call each other through tables. The source fills the tables.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum { NOTHING = 0, TCP = 1, AGAIN = 2, IPV4 = 4, IPV6 = 6 };

int see_ipv4(struct xdp_md *ctx);
int see_ipv6(struct xdp_md *ctx);
int see_tcp(struct xdp_md *ctx);
int again(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 8);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} protocols SEC(".maps") = {
	.values = { [IPV4] = (void *)&see_ipv4, [IPV6] = (void *)&see_ipv6 },
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} steps SEC(".maps") = {
	.values = { [TCP] = (void *)&see_tcp, [AGAIN] = (void *)&again },
};

__u64 packets, ipv4, ipv6, tcp, went_on, rounds;

SEC("xdp") int see_packet(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;

	packets++;
	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	bpf_tail_call(ctx, &protocols, ethernet->h_proto == bpf_htons(ETH_P_IP) ? IPV4 : IPV6);
	return XDP_PASS;
}

SEC("xdp") int see_ipv4(struct xdp_md *ctx)
{
	struct iphdr *ip = (void *)(long)ctx->data + sizeof(struct ethhdr);

	ipv4++;
	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	/* An empty slot, and a slot beyond the end. */
	bpf_tail_call(ctx, &steps, NOTHING);
	bpf_tail_call(ctx, &steps, 1000);
	went_on++;
	if (ip->protocol == 6)
		bpf_tail_call(ctx, &steps, TCP);
	return XDP_PASS;
}

SEC("xdp") int see_ipv6(struct xdp_md *ctx)
{
	ipv6++;
	return XDP_PASS;
}

SEC("xdp") int see_tcp(struct xdp_md *ctx)
{
	tcp++;
	bpf_tail_call(ctx, &steps, AGAIN);
	return XDP_PASS;
}

/* The kernel refuses call 34 and continues here. The daemon lets the packet pass. */
SEC("xdp") int again(struct xdp_md *ctx)
{
	rounds++;
	bpf_tail_call(ctx, &steps, AGAIN);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
