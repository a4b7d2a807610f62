// Several programs for one hook, in sections that libbpf does not know. They share a function.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct record {
	__u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 5);
	__type(key, __u32);
	__type(value, struct record);
} stats SEC(".maps");

static __noinline int note(struct xdp_md *ctx, __u32 action)
{
	struct record *record = bpf_map_lookup_elem(&stats, &action);

	if (!record)
		return XDP_ABORTED;
	record->packets++;
	record->bytes += ctx->data_end - ctx->data;
	return action;
}

SEC("xdp_pass")
int xdp_pass_func(struct xdp_md *ctx)
{
	return note(ctx, XDP_PASS);
}

SEC("xdp_drop")
int xdp_drop_func(struct xdp_md *ctx)
{
	return note(ctx, XDP_DROP);
}

char _license[] SEC("license") = "GPL";
