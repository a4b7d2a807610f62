// Prints texts and addresses. The program passes pointers, and the kernel prints their targets.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, char[16]);
} names SEC(".maps");

__u64 packets;

SEC("xdp")
int see(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = data + sizeof(*ethernet), copy;
	__u32 zero = 0;
	char *name = bpf_map_lookup_elem(&names, &zero);

	__sync_fetch_and_add(&packets, 1);
	if (!name || (void *)(ip + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	__builtin_memcpy(&copy, ip, sizeof(copy));
	bpf_printk("%s: %pI4 to %pI4, %d bytes", name, &copy.saddr, &copy.daddr, bpf_ntohs(copy.tot_len));
	bpf_printk("from %pI4", &ip->saddr);
	/* clang merges both calls. */
	if (copy.protocol == IPPROTO_UDP)
		bpf_printk("a datagram");
	else if (copy.protocol == IPPROTO_TCP)
		bpf_printk("a segment");
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
