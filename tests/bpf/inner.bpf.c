// Counts packets in an inner map. RENAMED renames a field of its values. With REFUSED, every verifier refuses the
// program.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct counted {
	__u64 packets;
#ifdef RENAMED
	__u64 renamed;
#else
	__u64 unused;
#endif
};

struct by_zero {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct counted);
};

static struct by_zero inner SEC(".maps");

struct {
	__uint(type, OUTER);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, struct by_zero);
} outer SEC(".maps") = { .values = { [0] = &inner } };

SEC("xdp") int count(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct counted one = { .packets = 1 }, *value;
	void *map = bpf_map_lookup_elem(&outer, &key);

	if (!map)
		return XDP_PASS;
	value = bpf_map_lookup_elem(map, &key);
	if (!value && bpf_map_update_elem(map, &key, &one, BPF_NOEXIST))
		value = bpf_map_lookup_elem(map, &key);
	else if (!value)
		return XDP_PASS;
	if (value)
		__sync_fetch_and_add(&value->packets, 1);
#ifdef REFUSED
	return *(int *)(long)ctx->data_end;
#endif
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
