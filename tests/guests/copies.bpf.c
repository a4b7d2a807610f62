// libbpf's headers by the folder of a copy that is not there, and names of other headers: htons, IPPROTO_TCP.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include "../kernel/bpf_endian.h"
#include "kernel/bpf_helpers.h"

__u64 packets;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = data + sizeof(*ethernet);

	if ((void *)(ip + 1) > end || ethernet->h_proto != htons(ETH_P_IP) || ip->protocol != IPPROTO_TCP)
		return XDP_PASS;
	if (bpf_ntohs(ip->tot_len) >= sizeof(*ip))
		__sync_fetch_and_add(&packets, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
