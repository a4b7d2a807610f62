// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reads unwritten bytes of the stack: in the program, in functions, in the padding of a structure and after a failed
// load. `remains` collects what it finds.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define NOINLINE __attribute__((noinline))

struct found {
	__u64 packets;
	__u64 remains;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct found);
} found SEC(".maps");

/* Padding follows `kind` and `port`. */
struct padded {
	unsigned char kind;
	__u32 length;
	__u16 port;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct padded);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[8]);
} buffers SEC(".maps");

#define SLOT(offset)									\
	({										\
		__u64 slot_;								\
											\
		asm volatile("%0 = *(u64 *)(r10 - " #offset ")" : "=r"(slot_));		\
		slot_;									\
	})

static NOINLINE __u64 in_function(int shift)
{
	__u64 all = SLOT(8) | SLOT(16) | SLOT(24) | SLOT(32);

	asm volatile("*(u64 *)(r10 - 8) = %0" : : "r"(all));
	return SLOT(8) | all << (shift & 1);
}

static NOINLINE __u64 in_structure(int port)
{
	struct padded entry, *copy;
	__u32 key = 0;

	entry.kind = 1;
	entry.length = 2;
	entry.port = port;
	bpf_map_update_elem(&entries, &key, &entry, BPF_ANY);
	copy = bpf_map_lookup_elem(&entries, &key);
	return copy ? ((__u32 *)copy)[0] >> 8 | ((__u32 *)copy)[2] >> 16 : 0;
}

#ifdef TC
SEC("tc") int probe(struct __sk_buff *ctx)
#else
SEC("xdp") int probe(struct xdp_md *ctx)
#endif
{
	__u64 remains = SLOT(200) | SLOT(208) | SLOT(216) | SLOT(224) | SLOT(232) | SLOT(240) | SLOT(248);
	__u64 buffer[8], *copy;
	struct found *all;
	__u32 key = 0;

	remains |= in_function(ctx->ingress_ifindex) | in_structure(ctx->ingress_ifindex);
#ifdef BYTES
	bpf_xdp_load_bytes(ctx, 100000, buffer, sizeof(buffer));
	bpf_map_update_elem(&buffers, &key, buffer, BPF_ANY);
	copy = bpf_map_lookup_elem(&buffers, &key);
	if (copy)
		remains |= copy[0] | copy[1] | copy[2] | copy[3] | copy[4] | copy[5] | copy[6] | copy[7];
#endif
	all = bpf_map_lookup_elem(&found, &key);
	if (all) {
		all->packets++;
		all->remains |= remains;
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
