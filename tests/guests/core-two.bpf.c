// Two programs in one section. Both adapt to the kernel's types (CO-RE).
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

struct xdp_md___later {
	__u32 egress_ifindex;
} __attribute__((preserve_access_index));

__u64 known, other;

SEC("xdp")
int first(struct xdp_md *ctx)
{
	struct xdp_md___later *later = (void *)ctx;

	__sync_fetch_and_add(&known, bpf_core_field_exists(later->egress_ifindex));
	return XDP_PASS;
}

SEC("xdp")
int second(struct xdp_md *ctx)
{
	struct xdp_md___later *later = (void *)ctx;

	__sync_fetch_and_add(&other, bpf_core_field_size(later->egress_ifindex));
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
