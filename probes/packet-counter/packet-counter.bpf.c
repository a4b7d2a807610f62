// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * packet-counter: counts packets and bytes per IP protocol.
 *
 * The source is for both hooks: XDP, or TC if TC is defined. Bytes include the
 * Ethernet header and VLAN tags, even if the network card removed the tag.
 * They exclude the frame check sequence. At TC a packet may stand for several
 * frames (GSO, GRO), and all of them count.
 *
 * Before Linux 5.18 XDP sees only the first buffer of a jumbo frame.
 */
/* Takes the hook from the daemon's macros. */
#if defined(TWINPROBE_TC) && !defined(TC)
#define TC
#endif
#if defined(TWINPROBE_SINGLE_BUFFER) && !defined(NO_FRAGS)
#define NO_FRAGS
#endif

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#ifdef TC
#ifndef TWINPROBE_TC
#define TWINPROBE_TC 1
#endif
/* A packet may stand for several frames. */
#include <twinprobe/packet.h>
#include <twinprobe/segments.h>
#endif

#ifndef PROTOCOLS
#define PROTOCOLS 512	/* 256 of IP, those from NOT_IP on, and a reserve */
#endif
#define MAX_TAGS 2
#define MAX_EXTENSIONS 6
#define MAX_HEADERS 128

/*
 * Records what the numbers depend on, because offloads of an interface may make them approximate. The daemon reads it.
 * The instruction gives clang a place for the source line: the kernel refuses two lines for one instruction.
 */
#define SEES(WHAT)									\
	({										\
		__u64 line_;								\
		asm volatile("%0 = 0\n\t.pushsection .twinprobe.sees,\"\",@progbits\n\t"	\
			     ".asciz \"" WHAT "\"\n\t.popsection" : "=r"(line_));		\
	})

/* Numbers of IANA. Those from NOT_IP on are for packets without an IP protocol. */
enum protocol {
	ICMP = 1,
	IGMP = 2,
	IPIP = 4,
	TCP = 6,
	UDP = 17,
	DCCP = 33,
	IPV6 = 41,
	GRE = 47,
	ESP = 50,
	AH = 51,
	ICMPV6 = 58,
	OSPF = 89,
	SCTP = 132,
	UDPLITE = 136,
	NOT_IP = 256,
	ARP = 257,
	MALFORMED = 258,
};

struct counters {
	__u64 packets;
	__u64 bytes;
};

/* A hash has entries only for protocols that occur, unlike an array. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__type(key, enum protocol);
	__type(value, struct counters);
	__uint(max_entries, PROTOCOLS);
} protocols SEC(".maps");

struct tag {
	__be16 tci;
	__be16 ether_type;
};

/* Returns the transport protocol of an IPv6 packet. Skips extension headers. */
static __always_inline enum protocol ipv6_protocol(void *header, void *data_end)
{
	struct ipv6hdr *ip = header;
	__u8 next, *extension = (__u8 *)(ip + 1);

	if ((void *)(ip + 1) > data_end)
		return MALFORMED;
	next = ip->nexthdr;
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		/* Hop-by-hop, routing, fragment, destination options. */
		if (next != 0 && next != 43 && next != 44 && next != 60)
			break;
		if ((void *)(extension + 8) > data_end)
			return MALFORMED;
		__u8 length = next == 44 ? 0 : extension[1];

		next = extension[0];
		extension += 8 + length * 8;
	}
	return next;
}

static __always_inline enum protocol protocol_of(void *data, void *data_end)
{
	struct ethhdr *eth = data;
	void *header = eth + 1;
	__be16 ether_type;

	if (header > data_end)
		return MALFORMED;
	ether_type = eth->h_proto;
	for (int i = 0; i < MAX_TAGS; i++) {
		struct tag *tag = header;

		if (ether_type != bpf_htons(ETH_P_8021Q) && ether_type != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > data_end)
			return MALFORMED;
		ether_type = tag->ether_type;
		header = tag + 1;
	}
	if (ether_type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = header;

		return (void *)(ip + 1) > data_end ? MALFORMED : ip->protocol;
	}
	if (ether_type == bpf_htons(ETH_P_IPV6))
		return ipv6_protocol(header, data_end);
	return ether_type == bpf_htons(ETH_P_ARP) ? ARP : NOT_IP;
}

static __always_inline void count(enum protocol protocol, __u64 packets, __u64 bytes)
{
	struct counters *counters = bpf_map_lookup_elem(&protocols, &protocol);

	if (counters) {
		counters->packets += packets;
		counters->bytes += bytes;
	} else {
		/* An insertion clears the other CPUs' counters. If another CPU inserts first, it clears ours. */
		struct counters first = { .packets = packets, .bytes = bytes };

		if (bpf_map_update_elem(&protocols, &protocol, &first, BPF_NOEXIST)) {
			counters = bpf_map_lookup_elem(&protocols, &protocol);
			if (counters) {
				counters->packets += packets;
				counters->bytes += bytes;
			}
		}
	}
}

#ifdef TC
SEC("tc")
int packet_counter(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct tp_packet packet = { .context = skb };

	SEES("ethernet");
	/* Pulls headers into the linear part only if needed: the call is slow. */
	if (data + MAX_HEADERS > data_end && skb->len > data_end - data) {
		bpf_skb_pull_data(skb, skb->len < MAX_HEADERS ? skb->len : MAX_HEADERS);
		data = (void *)(long)skb->data;
		data_end = (void *)(long)skb->data_end;
	}
	count(protocol_of(data, data_end), tp_segments(&packet), tp_length(&packet));
	return TC_ACT_UNSPEC;
}
#else
#ifdef NO_FRAGS
SEC("xdp")
#else
SEC("xdp.frags")
#endif
int packet_counter(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;

	SEES("ethernet");
	SEES("lengths");
	SEES("frames");
#ifdef NO_FRAGS
	count(protocol_of(data, data_end), 1, data_end - data);
#else
	count(protocol_of(data, data_end), 1, bpf_xdp_get_buff_len(ctx));
#endif
	return XDP_PASS;
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
