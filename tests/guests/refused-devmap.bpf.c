// A program that runs in a map of devices.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags_devmap")
int redirected(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
