// A project's own vmlinux.h with a few types, beside the kernel's API.
#include <bpf/vmlinux.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct project_counts counts;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__sync_fetch_and_add(&counts.packets, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
