// Definitions that the headers of the host have by now, too.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

enum bpf_check_mtu_flags {
	BPF_MTU_CHK_SEGS = 1,
};
static long (*bpf_xdp_load_bytes)(struct xdp_md *ctx, __u32 offset, void *to, __u32 length) = (void *)189;

__u64 packets;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u8 address[6];

	if (bpf_xdp_load_bytes(ctx, 0, address, sizeof(address)) == 0)
		__sync_fetch_and_add(&packets, BPF_MTU_CHK_SEGS);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
