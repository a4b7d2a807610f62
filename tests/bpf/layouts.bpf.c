// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts every packet in a map of each kind. LAYOUT chooses the type of a value. VARIANT changes the program.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef LAYOUT
#define LAYOUT 0
#endif
#ifndef VARIANT
#define VARIANT 0
#endif
#ifndef HASH_TYPE
#define HASH_TYPE BPF_MAP_TYPE_HASH
#endif
#ifndef KEY
#define KEY __u32
#endif

#if LAYOUT == 0 /* the first layout */
struct inner {
	__u32 even;
	__u32 odd;
};
struct value {
	__u64 packets;
	__u64 bytes;
	struct inner ports;
};
#elif LAYOUT == 1 /* adds fields, also in front */
struct inner {
	__u32 even;
	__u32 odd;
};
struct value {
	__u16 first;
	__u64 packets;
	__u64 bytes;
	__u32 added;
	struct inner ports;
};
#elif LAYOUT == 2 /* moves fields */
struct inner {
	__u32 odd;
	__u32 even;
};
struct value {
	struct inner ports;
	__u64 bytes;
	__u64 packets;
};
#else /* removes fields */
struct value {
	__u64 packets;
};
#endif

#define MAP(NAME, TYPE, KEY_TYPE)                                                                  \
	struct {                                                                                   \
		__uint(type, TYPE);                                                                \
		__uint(max_entries, 8);                                                            \
		__type(key, KEY_TYPE);                                                             \
		__type(value, struct value);                                                       \
	} NAME SEC(".maps")

MAP(in_array, BPF_MAP_TYPE_ARRAY, __u32);
MAP(in_hash, HASH_TYPE, KEY);
MAP(in_percpu_array, BPF_MAP_TYPE_PERCPU_ARRAY, __u32);
MAP(in_percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, __u32);

static __always_inline void count(void *map, const void *key, __u64 length, __u8 port)
{
	static const struct value none;
	struct value *value = bpf_map_lookup_elem(map, key);

	if (!value) {
		bpf_map_update_elem(map, key, &none, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, key);
	}
	if (!value)
		return;
	__sync_fetch_and_add(&value->packets, 1);
#if LAYOUT < 3
	__sync_fetch_and_add(&value->bytes, length);
	if (port & 1)
		__sync_fetch_and_add(&value->ports.odd, 1);
	else
		__sync_fetch_and_add(&value->ports.even, 1);
#endif
#if LAYOUT == 1
	value->first = 7;
	__sync_fetch_and_add(&value->added, 1);
#endif
}

SEC(SECTION) int count_packet(struct CONTEXT *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 port = data + 36 <= end ? data[35] : 0;
	__u32 key = port & 3;
	KEY hash_key = key;

	count(&in_array, &key, end - data, port);
#if VARIANT
	count(&in_percpu_hash, &key, end - data, port);
	count(&in_percpu_array, &key, end - data, port);
	count(&in_hash, &hash_key, end - data, port);
#else
	count(&in_hash, &hash_key, end - data, port);
	count(&in_percpu_array, &key, end - data, port);
	count(&in_percpu_hash, &key, end - data, port);
#endif
	return VERDICT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
