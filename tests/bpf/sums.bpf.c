// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts every packet in maps whose windows add up: by source address, in one number, per CPU, in a variable.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef ENTRIES
#define ENTRIES 1024
#endif

#ifdef STRUCT /* else a number */
struct value {
	__u64 packets;
};
#define VALUE struct value
#define PACKETS(VALUE) (&(VALUE)->packets)
#else
#define VALUE __u64
#define PACKETS(VALUE) (VALUE)
#endif

struct prefix {
	__u32 length;
	__u8 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENTRIES);
	__type(key, __u32);
	__type(value, VALUE);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ENTRIES);
	__type(key, struct prefix);
	__type(value, VALUE);
} prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, VALUE);
} one SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, VALUE);
} each_cpu SEC(".maps");

__u64 seen;

static __always_inline void count(void *map, const void *key)
{
	static const VALUE none;
	VALUE *value = bpf_map_lookup_elem(map, key);

	if (!value) {
		bpf_map_update_elem(map, key, &none, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, key);
	}
	if (value)
		__sync_fetch_and_add(PACKETS(value), 1);
}

SEC("xdp") int count_packet(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct prefix prefix = { .length = 32 };
	__u32 address = 0, first = 0;

	if (data + 30 <= end) {
		__builtin_memcpy(prefix.address, data + 26, 4);
		__builtin_memcpy(&address, data + 26, 4);
	}
	count(&flows, &address);
	count(&prefixes, &prefix);
	count(&one, &first);
	count(&each_cpu, &first);
	__sync_fetch_and_add(&seen, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
