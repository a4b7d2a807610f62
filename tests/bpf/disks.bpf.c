// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts packets in maps of small values, and in a hash with entries of SIZE bytes. The size of a window depends on the
// number of source addresses. All packets pass, so several probes see them.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef KEYS
#define KEYS 256
#endif
#ifndef SIZE
#define SIZE 16
#endif
/* A new VARIANT makes a replacement. */
#ifndef VARIANT
#define VARIANT 0
#endif

struct large {
	__u64 packets;
	char filler[SIZE];
	/* Proves that the end of the entry exists. */
	__u64 mark;
};

#define MAP(NAME, TYPE, ENTRIES, VALUE)                                                            \
	struct {                                                                                   \
		__uint(type, TYPE);                                                                \
		__uint(max_entries, ENTRIES);                                                      \
		__type(key, __u32);                                                                \
		__type(value, VALUE);                                                              \
	} NAME SEC(".maps")

MAP(packets, BPF_MAP_TYPE_ARRAY, 1, __u64);
MAP(total, BPF_MAP_TYPE_ARRAY, 1, __u64);
MAP(live, BPF_MAP_TYPE_ARRAY, 1, __u64);
MAP(large, BPF_MAP_TYPE_HASH, KEYS, struct large);
/* The first value of an entry. It is too large for the stack. */
MAP(empty, BPF_MAP_TYPE_ARRAY, 1, struct large);

#define ADDRESS_LOW_BYTE 29

static __always_inline void count(void *map)
{
	__u32 zero = 0;
	__u64 *value = bpf_map_lookup_elem(map, &zero);

	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("xdp") int count_packet(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, key = data + ADDRESS_LOW_BYTE < end ? data[ADDRESS_LOW_BYTE] % KEYS : 0;
	struct large *entry = bpf_map_lookup_elem(&large, &key), *empty_entry;

	if (!entry) {
		empty_entry = bpf_map_lookup_elem(&empty, &zero);
		if (empty_entry)
			bpf_map_update_elem(&large, &key, empty_entry, BPF_NOEXIST);
		entry = bpf_map_lookup_elem(&large, &key);
	}
	if (entry) {
		__sync_fetch_and_add(&entry->packets, 1);
		entry->mark = key + 1000 + VARIANT;
	}
	count(&packets);
	count(&total);
	count(&live);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
