// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A table of ENTRIES numbers, or with FLOWS of flows. The test fills it.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifdef FLOWS
#define TAG(rendering) __attribute__((btf_decl_tag(rendering)))

struct flow {
	__u32 source TAG("ipv4");
	__u32 destination TAG("ipv4");
	__u16 source_port TAG("be16");
	__u16 destination_port TAG("be16");
	__u8 protocol;
};

struct counters {
	__u64 packets;
	__u64 bytes;
	__u64 first;
	__u64 last;
	__u32 syn;
	__u32 fin;
};

typedef struct flow table_key;
typedef struct counters table_value;
#else
typedef __u32 table_key;
typedef __u64 table_value;
#endif

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, table_key);
	__type(value, table_value);
	__uint(max_entries, ENTRIES);
} table SEC(".maps");

/* The map needs a reference to belong to the program. */
SEC("xdp") int refer(struct xdp_md *ctx)
{
	table_key key;

	__builtin_memset(&key, 0, sizeof(key));
	bpf_map_lookup_elem(&table, &key);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
