// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts every packet once in a map of each type, by the low byte of its source port.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAP(NAME, TYPE, ENTRIES)                                                                   \
	struct {                                                                                   \
		__uint(type, TYPE);                                                                \
		__uint(max_entries, ENTRIES);                                                      \
		__type(key, __u32);                                                                \
		__type(value, __u64);                                                              \
	} NAME SEC(".maps")

MAP(in_array, BPF_MAP_TYPE_ARRAY, 256);
MAP(in_hash, BPF_MAP_TYPE_HASH, 1024);
MAP(in_lru_hash, BPF_MAP_TYPE_LRU_HASH, 4096);
MAP(in_percpu_array, BPF_MAP_TYPE_PERCPU_ARRAY, 256);
MAP(in_percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, 1024);

#define SOURCE_PORT_LOW_BYTE 35

static __always_inline void count(void *map, __u32 key)
{
	__u64 one = 1, *value = bpf_map_lookup_elem(map, &key);

	if (!value) {
		if (!bpf_map_update_elem(map, &key, &one, BPF_NOEXIST))
			return;
		/* Another CPU has inserted the entry meanwhile. */
		value = bpf_map_lookup_elem(map, &key);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC(SECTION) int count_packet(struct CONTEXT *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 key = data + SOURCE_PORT_LOW_BYTE < end ? data[SOURCE_PORT_LOW_BYTE] : 0;

	count(&in_array, key);
	count(&in_hash, key);
	count(&in_lru_hash, key);
	count(&in_percpu_array, key);
	count(&in_percpu_hash, key);
	return VERDICT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
