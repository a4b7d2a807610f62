// A CO-RE source: kernel types instead of headers for user space.
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

__u64 ipv4;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) <= (void *)(long)ctx->data_end && eth->h_proto == bpf_htons(0x0800))
		__sync_fetch_and_add(&ipv4, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
