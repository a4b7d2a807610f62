// Maps in a map. Their key is a struct without another use, so clang writes only its name into the object.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct flow_key {
	__u32 src;
	__u32 dst;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 16);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_LRU_HASH);
		__uint(max_entries, 1000);
		__type(key, struct flow_key);
		__type(value, __u64);
	});
} flows SEC(".maps");

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();

	bpf_map_lookup_elem(&flows, &cpu);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
