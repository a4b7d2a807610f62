// Names and headers of sources that compile inside the kernel: types without underscores that only some files define,
// marks for the kernel's checker sparse, and headers that include those of Ethernet, TCP, UDP and
// VLANs. The macros of others are there, too.
#include <linux/compiler.h>
#include <asm/compiler.h>
#include <uapi/asm-generic/types.h>
#include <uapi/linux/bpf.h>
#include <linux/in.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <bpf/bpf_helpers.h>

typedef unsigned long long u64; /* the project's own */

enum { u16_max = 0xffff, u8s = 2 };

struct sizes {
	u32 headers;
	u8 u8[u8s];
};

u64 packets, fragments;
u32 ports;

SEC("xdp1")
int count(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = data + sizeof(*ethernet);
	struct tcphdr *tcp = (void *)(ip + 1);
	struct sizes sizes = { .headers = sizeof(struct udphdr) + sizeof(struct vlan_hdr) };
	bool is_tcp;

	if ((void *)(tcp + 1) > end || ethernet->h_proto != (__force __be16)bpf_htons(ETH_P_IP))
		return XDP_PASS;
	is_tcp = ip->protocol == IPPROTO_TCP && sizes.headers + AF_INET == 14;
	if (ip_is_fragment(ip))
		__sync_fetch_and_add(&fragments, 1);
	if (is_tcp && bpf_ntohs(tcp->dest) < u16_max)
		__sync_fetch_and_add(&ports, 1);
	__sync_fetch_and_add(&packets, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
