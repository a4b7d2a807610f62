// A header in a folder beside the program's folder, and a vmlinux.h in a folder.
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
