// Variables in sections of their own.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

__u64 first SEC(".data.counters") = 40;
__u64 second SEC(".bss.counters");
const volatile __u32 step SEC(".rodata.settings") = 2;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__sync_fetch_and_add(&first, step);
	__sync_fetch_and_add(&second, step);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
