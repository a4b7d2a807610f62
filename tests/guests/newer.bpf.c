// A source for newer compilers and headers: C23 has bool without a header, and libbpf's bpf_core_read.h includes
// bpf_helpers.h, which has loops over numbers. The project has its own vmlinux.h with a few types.
#include <bpf/vmlinux.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>

__u64 packets, short_packets, turns;
const volatile bool count_short = true;

static bool is_short(struct xdp_md *ctx)
{
	return ctx->data_end - ctx->data <= 60 ? true : false;
}

SEC("xdp")
int count(struct xdp_md *ctx)
{
	int turn;

	bpf_for(turn, 2, 5)
		__sync_fetch_and_add(&turns, turn);
	bpf_repeat(3)
		__sync_fetch_and_add(&turns, 1);
	__sync_fetch_and_add(&packets, 1);
	if (count_short && is_short(ctx))
		__sync_fetch_and_add(&short_packets, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
