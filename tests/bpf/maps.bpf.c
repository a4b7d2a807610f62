// Map types that counters.bpf.c lacks, and global variables. Each packet updates all.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_helpers.h>

struct prefix {
	__u32 prefixlen;
	__be32 address __attribute__((btf_decl_tag("ipv4")));
	/* Aligns the value, because atomic operations on arm64 need it. */
	__be32 unused;
};

// A key of seven bytes without padding.
struct odd {
	__u8 class;
	__u16 port;
	__u32 address;
} __attribute__((packed));

struct {
	__uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
	__uint(max_entries, 10000);
	__type(key, __u32);
	__type(value, __u32);
} in_lru_percpu_hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 10000);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u64);
} in_lpm_trie SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1237);
	__type(key, struct odd);
	__type(value, __u64);
} odd_keys SEC(".maps");

struct by_address {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1000);
	__type(key, __u32);
	__type(value, __u64);
};

struct by_address even SEC(".maps"), odd SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, __u32);
	__array(values, struct by_address);
} by_parity SEC(".maps") = { .values = { [0] = &even, [3] = &odd } };

struct per_cpu {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
};

static struct per_cpu first SEC(".maps"), second SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 8);
	__uint(key_size, 4);
	__array(values, struct per_cpu);
} per_cpu_by_parity SEC(".maps") = { .values = { &first, &second } };

__u64 packets;
struct totals {
	__u32 packets;
	__u32 bytes;
} totals;
__u64 unnamed;
__u64 from_hundred = 100;
__u8 neighbour = 7;
const volatile __u32 build = 42;

static __always_inline void count(void *map, const void *key)
{
	__u64 one = 1, *value = bpf_map_lookup_elem(map, key);

	if (value)
		__sync_fetch_and_add(value, 1);
	else if (bpf_map_update_elem(map, key, &one, BPF_NOEXIST)) {
		// Another CPU has inserted the entry meanwhile.
		value = bpf_map_lookup_elem(map, key);
		if (value)
			__sync_fetch_and_add(value, 1);
	}
}

SEC("xdp") int count_all(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);

	if ((void *)(ip + 1) > end)
		return XDP_DROP;

	__u32 address = __builtin_bswap32(ip->saddr), one = 1, *per_cpu;
	struct prefix prefix = { 32, ip->saddr };
	struct odd odd_key = { address & 1, address & 0xff, address };

	per_cpu = bpf_map_lookup_elem(&in_lru_percpu_hash, &address);
	if (per_cpu)
		*per_cpu += 1;
	else
		bpf_map_update_elem(&in_lru_percpu_hash, &address, &one, BPF_ANY);

	__u64 *value = bpf_map_lookup_elem(&in_lpm_trie, &prefix), first_packet = 1;
	if (value)
		__sync_fetch_and_add(value, 1);
	else
		bpf_map_update_elem(&in_lpm_trie, &prefix, &first_packet, BPF_ANY);

	count(&odd_keys, &odd_key);

	__u32 slot = address & 1 ? 3 : 0, parity = address & 1, zero = 0;
	void *inner = bpf_map_lookup_elem(&by_parity, &slot);
	if (inner)
		count(inner, &address);
	inner = bpf_map_lookup_elem(&per_cpu_by_parity, &parity);
	value = inner ? bpf_map_lookup_elem(inner, &zero) : 0;
	if (value)
		*value += 1;

	__sync_fetch_and_add(&packets, 1);
	__sync_fetch_and_add(&totals.packets, 1);
	__sync_fetch_and_add(&totals.bytes, (__u32)(end - data));
	__sync_fetch_and_add(&unnamed, 1);
	__sync_fetch_and_add(&from_hundred, neighbour == 7 && build == 42);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
