// A program for the entries of a DEVMAP.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags_devmap")
int redirected(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
