// A map definition from before BTF, with the annotation that told early loaders its types.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define ANNOTATE(map, key_type, value_type)                                                                \
	struct ____btf_map_##map {                                                                             \
		key_type key;                                                                                      \
		value_type value;                                                                                  \
	};                                                                                                     \
	struct ____btf_map_##map __attribute__((section(".maps." #map), used)) ____btf_map_##map = {}

struct early_map {
	__u32 type, key_size, value_size, max_entries, map_flags;
};

struct size {
	__u16 length;
	__u16 queue;
};

struct sum {
	__u64 packets;
	__u64 bytes;
};

struct early_map SEC("maps") sizes = {
	.type = BPF_MAP_TYPE_HASH,
	.key_size = sizeof(struct size),
	.value_size = sizeof(struct sum),
	.max_entries = 64,
};
ANNOTATE(sizes, struct size, struct sum);

/* This annotation is wrong. */
struct early_map SEC("maps") others = {
	.type = BPF_MAP_TYPE_HASH,
	.key_size = sizeof(struct size),
	.value_size = sizeof(__u32),
	.max_entries = 64,
};
ANNOTATE(others, struct size, struct sum);

SEC("xdp")
int measure(struct xdp_md *ctx)
{
	struct size size = { .length = ctx->data_end - ctx->data };
	struct sum first = { 1, size.length }, *sum = bpf_map_lookup_elem(&sizes, &size);
	__u32 one = 1;

	bpf_map_update_elem(&others, &size, &one, BPF_ANY);
	if (sum) {
		__sync_fetch_and_add(&sum->packets, 1);
		__sync_fetch_and_add(&sum->bytes, size.length);
	} else {
		bpf_map_update_elem(&sizes, &size, &first, BPF_NOEXIST);
	}
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
