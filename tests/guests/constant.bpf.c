// A constant that a loader sets before it loads the program, and other variables.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

enum mode { OFF, ON };

const volatile __u32 smallest = 0;
const volatile enum mode mode;
struct limits {
	__u16 low, high;
} limits = { 1, 2 };
char label[8];
__u64 packets;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	if (mode == ON && ctx->data_end - ctx->data >= smallest && label[0])
		__sync_fetch_and_add(&packets, limits.high);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
