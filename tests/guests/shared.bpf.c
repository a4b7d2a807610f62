// Headers that a project keeps beside the folders of its programs, and types of the kernel in a folder.
#include "bpf/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "../common/counters.h"

SEC("xdp")
int see(struct xdp_md *ctx)
{
	count(ctx->data_end - ctx->data);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
