// A map definition without types: for iproute2, early libbpf and aya.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct early_map {
	__u32 type, key_size, value_size, max_entries, map_flags;
};

struct early_map SEC("maps") packets = {
	.type = BPF_MAP_TYPE_ARRAY,
	.key_size = sizeof(__u32),
	.value_size = sizeof(__u64),
	.max_entries = 1,
};

SEC("xdp_counter")
int count(struct xdp_md *ctx)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&packets, &zero);

	if (n)
		__sync_fetch_and_add(n, 1);
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
