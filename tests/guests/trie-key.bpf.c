// A kernel type with its name from before Linux 6.9, and a compiler header whose types the kernel also has.
#include <stddef.h>
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(key_size, sizeof(struct bpf_lpm_trie_key) + sizeof(__u32));
	__uint(value_size, sizeof(__u32));
	__uint(max_entries, 8);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} networks SEC(".maps");

size_t bytes;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	struct {
		__u32 prefixlen;
		__u32 address;
	} key = { 32, 0 };

	if (!bpf_map_lookup_elem(&networks, &key))
		__sync_fetch_and_add(&bytes, ctx->data_end - ctx->data);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
