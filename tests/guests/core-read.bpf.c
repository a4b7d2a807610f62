// Fields that some kernels have and others do not.
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

struct xdp_md___later {
	__u32 egress_ifindex;
	__u32 no_such_field;
} __attribute__((preserve_access_index));

__u64 known, unknown;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	struct xdp_md___later *later = (void *)ctx;

	known = bpf_core_field_exists(later->egress_ifindex);
	if (bpf_core_field_exists(later->no_such_field))
		unknown = later->no_such_field;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
