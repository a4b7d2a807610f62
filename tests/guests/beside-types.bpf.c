// Macros and a definition of maps from headers that do not fit beside the types of the kernel. The project's build has them in a
// file of its own.
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum { ETH_HLEN = sizeof(struct ethhdr) };

struct bpf_elf_map SEC("maps") lengths = {
	.type = BPF_MAP_TYPE_ARRAY,
	.size_key = sizeof(__u32),
	.size_value = sizeof(__u64),
	.max_elem = 1,
	.pinning = PIN_GLOBAL_NS,
};

__u64 ipv4, others;

SEC("tc")
int count(struct __sk_buff *skb)
{
	struct ethhdr *eth = (void *)(long)skb->data;
	__u32 zero = 0;
	__u64 *length;

	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return TC_ACT_UNSPEC;
	length = bpf_map_lookup_elem(&lengths, &zero);
	if (length)
		__sync_fetch_and_add(length, skb->len - ETH_HLEN);
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		__sync_fetch_and_add(&ipv4, 1);
	else
		__sync_fetch_and_add(&others, 1);
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "GPL";
