// SPDX-License-Identifier: Apache-2.0 OR MIT
// Chains of programs as frameworks on prog-arrays make them: each program calls the next one by an index that it reads from
// a map. SECTION, CONTEXT and VERDICT are the hook's; COUNTER makes each program count.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u32);
} chain SEC(".maps");

// The index of the first program; flipping twins changes it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} first SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} packets SEC(".maps");

SEC(SECTION) int entry(struct CONTEXT *ctx)
{
	__u32 zero = 0, *index = bpf_map_lookup_elem(&first, &zero);

	if (index)
		bpf_tail_call(ctx, &chain, *index);
	return VERDICT;
}

SEC(SECTION) int link(struct CONTEXT *ctx)
{
#ifdef COUNTER
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&packets, &key);

	if (value)
		++*value;
#endif
	if (NEXT)
		bpf_tail_call(ctx, &chain, NEXT);
	return VERDICT;
}

char LICENSE[] SEC("license") = "GPL";
