// Two programs in one section. One reads packets, and the other redirects them through maps that probes can't have.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} tx_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash, __u32 *kind) __ksym;

static __noinline int add(__u32 slot)
{
	__u64 *count = bpf_map_lookup_elem(&seen, &slot);

	if (count)
		*count += 1;
	return slot;
}

SEC("xdp")
int look(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	add(eth->h_proto == __builtin_bswap16(ETH_P_IP));
	return XDP_PASS;
}

static __noinline int hand_on(struct xdp_md *ctx)
{
	return bpf_redirect_map(&tx_ports, ctx->ingress_ifindex, XDP_PASS);
}

SEC("xdp")
int forward(struct xdp_md *ctx)
{
	__u32 hash = 0, kind = 0;

	if (bpf_xdp_metadata_rx_hash(ctx, &hash, &kind) == 0 && hash & 1)
		return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	add(1);
	return hand_on(ctx);
}

char LICENSE[] SEC("license") = "GPL";
