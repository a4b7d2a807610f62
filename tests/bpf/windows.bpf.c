// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts every packet in several maps, and queues its serial number.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef KEYS
#define KEYS 4
#endif
#ifndef QUEUED
#define QUEUED 0
#endif

#define MAP(NAME, TYPE, ENTRIES)                                                                   \
	struct {                                                                                   \
		__uint(type, TYPE);                                                                \
		__uint(max_entries, ENTRIES);                                                      \
		__type(key, __u32);                                                                \
		__type(value, __u64);                                                              \
	} NAME SEC(".maps")

MAP(in_array, BPF_MAP_TYPE_ARRAY, KEYS);
MAP(in_hash, BPF_MAP_TYPE_HASH, 2 * KEYS);
MAP(in_percpu_array, BPF_MAP_TYPE_PERCPU_ARRAY, KEYS);
MAP(in_percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, 2 * KEYS);
MAP(total, BPF_MAP_TYPE_ARRAY, 1);
MAP(live, BPF_MAP_TYPE_ARRAY, 1);

#if QUEUED
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, QUEUED);
	__type(value, __u64);
} serials SEC(".maps");
#endif

// Twins share this variable: numbers continue from one window to the next.
__u64 packets;
__u64 unqueued;

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

SEC("xdp") int count_packet(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 key = data + SOURCE_PORT_LOW_BYTE < end ? data[SOURCE_PORT_LOW_BYTE] % KEYS : 0;

	count(&in_array, key);
	count(&in_hash, key);
	count(&in_percpu_array, key);
	count(&in_percpu_hash, key);
	count(&total, 0);
	count(&live, 0);
#if QUEUED
	__u64 serial = __sync_fetch_and_add(&packets, 1);

	if (bpf_map_push_elem(&serials, &serial, 0))
		__sync_fetch_and_add(&unqueued, 1);
#endif
	return VERDICT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
