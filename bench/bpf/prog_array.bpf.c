// SPDX-License-Identifier: Apache-2.0 OR MIT
// Chains of programs as frameworks on prog-arrays make them: each program calls the next one by an index that it reads from
// a map, so that chains can be changed. SECTION, CONTEXT and VERDICT are the hook's; NUMBER is a program's own index, 0 that of
// the program that is attached; COUNTER makes each program but this one count.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u32);
} chain SEC(".maps");

// The index of the program after each one; an empty slot ends the chain.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u32);
} after SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} packets SEC(".maps");

SEC(SECTION) int link(struct CONTEXT *ctx)
{
	__u32 number = NUMBER, *next = bpf_map_lookup_elem(&after, &number);
#ifdef COUNTER
	__u32 key = 0;
	__u64 *value = NUMBER ? bpf_map_lookup_elem(&packets, &key) : 0;

	if (value)
		++*value;
#endif
	if (next && *next)
		bpf_tail_call(ctx, &chain, *next);
	return VERDICT;
}

char LICENSE[] SEC("license") = "GPL";
