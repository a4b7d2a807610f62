// Macros and a header that exist only in the kernel's sources.
#include <linux/kconfig.h>
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <bpf/bpf_helpers.h>

__u64 packets;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;

	if (unlikely((void *)(ethernet + 1) > (void *)(long)ctx->data_end))
		return XDP_ABORTED;
	if (likely(ethernet->h_proto))
		__sync_fetch_and_add(&packets, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
