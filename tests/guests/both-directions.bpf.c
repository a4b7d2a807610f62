// One file with programs for both directions of TC, one for XDP, and one that traces.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

__u64 came, went, seen;

SEC("tc/ingress")
int in(struct __sk_buff *skb)
{
	__sync_fetch_and_add(&came, 1);
	return TC_ACT_OK;
}

SEC("tc/egress")
int out(struct __sk_buff *skb)
{
	__sync_fetch_and_add(&went, 1);
	return TC_ACT_OK;
}

SEC("xdp")
int early(struct xdp_md *ctx)
{
	__sync_fetch_and_add(&seen, 1);
	return XDP_PASS;
}

SEC("kprobe/tcp_connect")
int trace(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
