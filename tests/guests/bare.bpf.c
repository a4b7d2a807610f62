// Headers of libbpf without a folder, as in projects with copies.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf_helpers.h>
#include "bpf_endian.h"

__u64 ipv4;

SEC("xdp")
int see(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;

	if ((void *)(ethernet + 1) <= end && ethernet->h_proto == bpf_htons(ETH_P_IP))
		__sync_fetch_and_add(&ipv4, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
