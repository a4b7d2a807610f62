// Hook: tc. Verdicts of Linux 6.6, and a perf event array without sizes, which most loaders set.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
} samples SEC(".maps");

__u64 packets;

SEC("tcx/ingress")
int count(struct __sk_buff *skb)
{
	__u32 length = skb->len;

	__sync_fetch_and_add(&packets, 1);
	bpf_perf_event_output(skb, &samples, BPF_F_CURRENT_CPU, &length, sizeof(length));
	return TCX_NEXT;
}

char LICENSE[] SEC("license") = "GPL";
