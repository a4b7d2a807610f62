// libbpf as a submodule of the project, included before the types that it needs; names of the kernel's own sources; a ring
// buffer whose definition names the type of events.
#include "../libbpf/src/bpf_helpers.h"
#include <linux/bpf.h>
#include <linux/if_ether.h>

struct event {
	__u32 length;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
	__type(value, struct event);
} events SEC(".maps");

__u64 bytes;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u32 length = ctx->data_end - ctx->data;
	struct ethhdr *ethernet = (void *)(long)ctx->data;
	struct event event = { length };

	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (be16_to_cpu(ethernet->h_proto) == ETH_P_IP && ethernet->h_proto == cpu_to_be16(ETH_P_IP))
		__sync_fetch_and_add(&bytes, max(length, 64U) + min(length, 64U));
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
