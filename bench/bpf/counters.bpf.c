// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program that counts in maps of one entry each, or only returns. SECTION, CONTEXT and VERDICT are the hook's; EACH(with) has
// `with(NAME)` for each map, or nothing.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAP(name)                                  \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(max_entries, 1);            \
		__type(key, __u32);                \
		__type(value, __u64);              \
	} name SEC(".maps");
#define COUNT(name)                                \
	value = bpf_map_lookup_elem(&name, &key);  \
	if (value)                                 \
		++*value;

EACH(MAP)

SEC(SECTION) int probe(struct CONTEXT *ctx)
{
	__u32 key = 0;
	__u64 *value;

	EACH(COUNT)
	return VERDICT;
}

char LICENSE[] SEC("license") = "GPL";
