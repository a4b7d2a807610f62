// A source for the loader of iproute2: its definition of maps with pins, a trie without BPF_F_NO_PREALLOC, which every
// trie needs, and legacy packet loads.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf_elf.h>
#include "bpf_legacy.h"

struct network {
	__u32 length;
	__u32 address;
};

struct bpf_elf_map SEC("maps") networks = {
	.type = BPF_MAP_TYPE_LPM_TRIE,
	.size_key = sizeof(struct network),
	.size_value = sizeof(__u32),
	.max_elem = 16,
	.pinning = PIN_GLOBAL_NS,
};

__u64 ipv4, others;

static int is_ipv4(struct __sk_buff *skb)
{
	return load_half(skb, 12) == ETH_P_IP ? true : false;
}

SEC("classifier")
int count(struct __sk_buff *skb)
{
	struct network all = { 32, 0 };

	if (is_ipv4(skb) && !bpf_map_lookup_elem(&networks, &all))
		__sync_fetch_and_add(&ipv4, 1);
	else
		__sync_fetch_and_add(&others, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
