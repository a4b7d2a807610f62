// Maps whose sizes the loader sets: one has no size here, and one has more than a host may allow.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
} lengths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1 << 28);
	__type(key, __u64);
	__type(value, __u64[8]);
} flows SEC(".maps");

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u32 length = ctx->data_end - ctx->data;
	__u64 one = 1, flow = ctx->ingress_ifindex, *seen = bpf_map_lookup_elem(&lengths, &length);

	if (seen)
		__sync_fetch_and_add(seen, 1);
	else
		bpf_map_update_elem(&lengths, &length, &one, BPF_ANY);
	bpf_map_delete_elem(&flows, &flow);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
