// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts packets by source port in a table of both directions, and all packets in a table of one direction.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef ENTRIES
#define ENTRIES 1024
#endif
#ifndef OWN
#define OWN 1
#endif

struct session {
	__u64 in;
	__u64 out;
#ifdef WIDE
	__u64 more;
#endif
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENTRIES);
	__type(key, __u32);
	__type(value, struct session);
} sessions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} packets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 4096);
	__type(value, __u32);
} sizes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWN);
	__type(key, __u32);
	__type(value, __u64);
} own SEC(".maps");

#define SOURCE_PORT_LOW_BYTE 35

SEC(SECTION) int see(struct CONTEXT *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 key = data + SOURCE_PORT_LOW_BYTE < end ? data[SOURCE_PORT_LOW_BYTE] : 0;
	__u32 zero = 0, size = end - data;
	struct session none = {}, *session;
	__u64 *count;

	bpf_map_update_elem(&sessions, &key, &none, BPF_NOEXIST);
	session = bpf_map_lookup_elem(&sessions, &key);
	if (session)
		__sync_fetch_and_add(&session->FIELD, 1);
	count = bpf_map_lookup_elem(&packets, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
	count = bpf_map_lookup_elem(&own, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
	bpf_map_push_elem(&sizes, &size, 0);
	return VERDICT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
