// An address filter, and a map of each type that a configuration can fill. Two entries of a map must be equal.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_helpers.h>

typedef __u32 ipv4 __attribute__((btf_decl_tag("ipv4")));

struct prefix {
	__u32 length;
	ipv4 address;
};

struct pair {
	__u32 first;
	__u64 second;
};

#define MAP(kind, key_type, name) \
	struct { \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, 1024); \
		__type(key, key_type); \
		__type(value, struct pair); \
	} name SEC(".maps")

MAP(HASH, ipv4, watched);
MAP(HASH, __u32, hash);
MAP(LRU_HASH, __u32, lru_hash);
MAP(PERCPU_HASH, __u32, percpu_hash);
MAP(LRU_PERCPU_HASH, __u32, lru_percpu_hash);
MAP(ARRAY, __u32, array);
MAP(PERCPU_ARRAY, __u32, percpu_array);
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16);
	__type(key, struct prefix);
	__type(value, struct pair);
} lpm_trie SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 10);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &what);
	if (value)
		*value += 1;
}

static __always_inline void check(void *map, void *first, void *second, __u32 what)
{
	struct pair *a = bpf_map_lookup_elem(map, first), *b = bpf_map_lookup_elem(map, second);
	if (!a || !b || a->first != b->first || a->first != a->second || b->first != b->second)
		count(what);
}

SEC("xdp")
int filter(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 one = 0, two = 1;
	struct prefix left = { 32, __builtin_bswap32(0x0a000001) }, right = { 32, __builtin_bswap32(0x0b000001) };

	count(0);
	if ((void *)(ip + 1) <= end) {
		ipv4 source = ip->saddr;
		if (bpf_map_lookup_elem(&watched, &source))
			count(1);
	}
	check(&hash, &one, &two, 2);
	check(&lru_hash, &one, &two, 3);
	check(&percpu_hash, &one, &two, 4);
	check(&lru_percpu_hash, &one, &two, 5);
	check(&array, &one, &two, 6);
	check(&percpu_array, &one, &two, 7);
	check(&lpm_trie, &left, &right, 8);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
