// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts packets and bytes, and with FLOWS > 0 packets per source address and port (untagged IPv4 without options).
// XDP drops packets, or lets them pass with PASS. TC leaves them to the next filter.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct flow {
	__u32 address;
	__u16 port;
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 2);
} totals SEC(".maps");

#if FLOWS
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct flow);
	__type(value, __u64);
	__uint(max_entries, FLOWS);
} flows SEC(".maps");
#endif

static __always_inline void add(__u32 index, __u64 amount)
{
	__u64 *total = bpf_map_lookup_elem(&totals, &index);

	if (total)
		*total += amount;
}

static __always_inline void count(void *data, void *data_end, __u64 length)
{
	add(0, 1);
	add(1, length);
#if FLOWS
	__u8 *byte = data;
	struct flow key = {};
	__u64 one = 1, *packets;

	if (data + 38 > data_end || byte[12] != 8 || byte[13] != 0 || byte[14] != 0x45)
		return;
	__builtin_memcpy(&key.address, byte + 26, 4);
	__builtin_memcpy(&key.port, byte + 34, 2);
	packets = bpf_map_lookup_elem(&flows, &key);
	if (packets)
		__sync_fetch_and_add(packets, 1);
	else if (bpf_map_update_elem(&flows, &key, &one, BPF_NOEXIST)) {
		packets = bpf_map_lookup_elem(&flows, &key);
		if (packets)
			__sync_fetch_and_add(packets, 1);
	}
#endif
}

SEC("xdp")
int count_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;

	count(data, data_end, data_end - data);
#ifdef PASS
	return XDP_PASS;
#else
	return XDP_DROP;
#endif
}

SEC("classifier")
int count_tc(struct __sk_buff *skb)
{
	count((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len);
	return -1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
