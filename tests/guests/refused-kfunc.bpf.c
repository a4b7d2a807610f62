// A kernel function that must exist.
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash, enum xdp_rss_hash_type *type) __ksym;

__u64 hashes;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	enum xdp_rss_hash_type type;
	__u32 hash;

	if (!bpf_xdp_metadata_rx_hash(ctx, &hash, &type))
		hashes = hash;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
