// Resembles early samples of the kernel, which compile inside its sources. Maps have no types. The loader fills a table
// of programs and reads text from the log.
#define KBUILD_MODNAME "guest"
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include "bpf_helpers.h"

struct bpf_map_def SEC("maps") packets = {
	.type = BPF_MAP_TYPE_ARRAY,
	.key_size = sizeof(u32),
	.value_size = sizeof(uint64_t),
	.max_entries = 1,
};

struct bpf_map_def SEC("maps") next_programs = {
	.type = BPF_MAP_TYPE_PROG_ARRAY,
	.key_size = sizeof(u32),
	.value_size = sizeof(u32),
	.max_entries = 4,
};

SEC("xdp1")
int count(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	u32 zero = 0;
	u64 *n = bpf_map_lookup_elem(&packets, &zero);

	if (n && (void *)(ethernet + 1) <= end)
		__sync_fetch_and_add(n, 1);
	else
		bpf_printk("a packet without a header\n");
	bpf_tail_call(ctx, &next_programs, zero);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
