// Two headers of the C library that define one type, in a source that once had the kernel's types.
//#include "vmlinux.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <unistd.h>
#include <stdint.h>

uint64_t packets;
intptr_t largest;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__sync_fetch_and_add(&packets, 1);
	largest = INT32_MAX;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
