// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An XDP program of another loader. It counts packets and lets them pass. The loader pins the map by name.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} neighbour_count SEC(".maps");

SEC("xdp")
int neighbour(struct xdp_md *packet)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&neighbour_count, &first);

	if (count)
		__sync_fetch_and_add(count, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
