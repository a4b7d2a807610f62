// Maps whose sizes only the loader knows: none has a number of entries.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
} packets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
} lengths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__type(key, __u32);
		__type(value, __u32);
	});
} limits SEC(".maps");

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u32 first = 0, length = ctx->data_end - ctx->data;
	__u64 *seen = bpf_map_lookup_elem(&packets, &first);

	if (seen && !bpf_map_lookup_elem(&limits, &first))
		__sync_fetch_and_add(seen, 1);
	bpf_ringbuf_output(&lengths, &length, sizeof(length), 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
