// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts every packet in a map of each type that a reading can reset without a snapshot. Queues its serial number.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef KEYS
#define KEYS 16
#endif
#ifndef QUEUED
#define QUEUED 262144
#endif
#ifndef HASH
#define HASH BPF_MAP_TYPE_HASH
#endif

// WIDE changes the layout of values, but not the name `packets`.
struct value {
#ifdef WIDE
	__u64 bytes;
#endif
	__u64 packets;
};

#define MAP(NAME, TYPE, ENTRIES)                                                                   \
	struct {                                                                                   \
		__uint(type, TYPE);                                                                \
		__uint(max_entries, ENTRIES);                                                      \
		__type(key, __u32);                                                                \
		__type(value, struct value);                                                       \
	} NAME SEC(".maps")
#define FIFO(NAME, TYPE)                                                                           \
	struct {                                                                                   \
		__uint(type, TYPE);                                                                \
		__uint(max_entries, QUEUED);                                                       \
		__type(value, __u64);                                                              \
	} NAME SEC(".maps")

MAP(in_array, BPF_MAP_TYPE_ARRAY, KEYS);
MAP(in_hash, HASH, 4 * KEYS);
MAP(in_lru_hash, BPF_MAP_TYPE_LRU_HASH, 16 * KEYS + 4096);
MAP(in_percpu_array, BPF_MAP_TYPE_PERCPU_ARRAY, KEYS);
MAP(in_percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, 4 * KEYS);
MAP(at_rest, BPF_MAP_TYPE_HASH, 4 * KEYS);
MAP(live, BPF_MAP_TYPE_ARRAY, 1);
FIFO(queue, BPF_MAP_TYPE_QUEUE);
FIFO(stack, BPF_MAP_TYPE_STACK);

__u64 serial;
__u64 packets;

static __always_inline void count(void *map, __u32 key)
{
	struct value one = { .packets = 1 }, *value = bpf_map_lookup_elem(map, &key);

	if (!value) {
		if (!bpf_map_update_elem(map, &key, &one, BPF_NOEXIST))
			return;
		/* Another CPU was first. */
		value = bpf_map_lookup_elem(map, &key);
	}
	if (value)
		__sync_fetch_and_add(&value->packets, 1);
}

SEC("xdp") int count_packet(struct xdp_md *ctx)
{
	__u64 n = __sync_fetch_and_add(&serial, 1);
	__u32 key = n % KEYS;

	__sync_fetch_and_add(&packets, 1);
	count(&in_array, key);
	count(&in_hash, key);
	count(&in_lru_hash, key);
	count(&in_percpu_array, key);
	count(&in_percpu_hash, key);
	count(&at_rest, key);
	count(&live, 0);
	bpf_map_push_elem(&queue, &n, 0);
	bpf_map_push_elem(&stack, &n, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
