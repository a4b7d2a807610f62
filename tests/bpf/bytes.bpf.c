// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts packets and their bytes from data to data_end, like a program for packets of a single buffer.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct rec {
	__u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rec);
} seen SEC(".maps");

SEC("xdp") /* not xdp.frags */
int count(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct rec *rec = bpf_map_lookup_elem(&seen, &zero);

	if (!rec)
		return XDP_ABORTED;
	__sync_fetch_and_add(&rec->packets, 1);
	__sync_fetch_and_add(&rec->bytes, ctx->data_end - ctx->data);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
