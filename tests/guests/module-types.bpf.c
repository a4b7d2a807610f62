// A type of a module of the kernel, in a program that is left out.
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

__u64 packets, cookies;

SEC("kprobe/psample_sample_packet")
int BPF_KPROBE(sampled, struct psample_group *group, struct sk_buff *skb, u32 rate, struct psample_metadata *data)
{
	cookies += BPF_CORE_READ(data, user_cookie_len) > 0;
	return 0;
}

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__sync_fetch_and_add(&packets, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
