// Dialect: bcc. Hook: tc. A kernel header for sockets, which includes those of packets.
#include <net/sock.h>
#include <bcc/proto.h>

BPF_ARRAY(kinds, u64, 2);

int see(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = data + sizeof(*ethernet);
	struct ipv6hdr *ip6 = data + sizeof(*ethernet);
	int kind = 0;

	if ((void *)(ip + 1) <= end && ethernet->h_proto == htons(ETH_P_IP) && (u_int8_t)ip->version == 4)
		kinds.increment(kind);
	kind = 1;
	if ((void *)(ip6 + 1) <= end && ethernet->h_proto == htons(ETH_P_IPV6) && ip6->nexthdr == IPPROTO_ICMPV6)
		kinds.increment(kind);
	return TC_ACT_OK;
}
