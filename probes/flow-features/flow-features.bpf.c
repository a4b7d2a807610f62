// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * flow-features: a flow table with up to 15 NetFlow v9 features, of which only
 * those asked for cost instructions and memory.
 *
 * Selecting features, by defines:
 *   FEATURES=n     features 1 to n of the list below (default 15)
 *   F_<NAME>=1     this feature; alone, or on top of FEATURES
 *
 * The table's key are the selected ones of 7, 8, 9, 11 and 12; without any,
 * all packets are one flow. The packet is parsed as deep as the selection
 * needs: not at all for 1-6, up to the IPv4 header for 7-10, up to the
 * transport header for 11-13.
 *
 * Further defines:
 *   TC             a TC program instead of an XDP program
 *   FLOWS=n        flows at most (default 65536)
 *   NO_FRAGS       for XDP on kernels before 5.18: IN_BYTES of a multi-buffer
 *                  frame is the length of its first buffer
 */
/* What the daemon says of the hook. */
#if defined(TWINPROBE_TC) && !defined(TC)
#define TC
#endif
#if defined(TWINPROBE_SINGLE_BUFFER) && !defined(NO_FRAGS)
#define NO_FRAGS
#endif

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#ifndef FEATURES
#if defined(F_INPUT_SNMP) || defined(F_OUTPUT_SNMP) || defined(F_SRC_AS) || defined(F_DST_AS) || \
	defined(F_IN_PKTS) || defined(F_IN_BYTES) || defined(F_IPV4_SRC_ADDR) || \
	defined(F_IPV4_DST_ADDR) || defined(F_PROTOCOL) || defined(F_SRC_TOS) || \
	defined(F_L4_SRC_PORT) || defined(F_L4_DST_PORT) || defined(F_TCP_FLAGS) || \
	defined(F_FIRST_SWITCHED) || defined(F_LAST_SWITCHED)
#define FEATURES 0
#else
#define FEATURES 15
#endif
#endif

#if FEATURES >= 1
#define F_INPUT_SNMP 1
#endif
#if FEATURES >= 2
#define F_OUTPUT_SNMP 1
#endif
#if FEATURES >= 3
#define F_SRC_AS 1
#endif
#if FEATURES >= 4
#define F_DST_AS 1
#endif
#if FEATURES >= 5
#define F_IN_PKTS 1
#endif
#if FEATURES >= 6
#define F_IN_BYTES 1
#endif
#if FEATURES >= 7
#define F_IPV4_SRC_ADDR 1
#endif
#if FEATURES >= 8
#define F_IPV4_DST_ADDR 1
#endif
#if FEATURES >= 9
#define F_PROTOCOL 1
#endif
#if FEATURES >= 10
#define F_SRC_TOS 1
#endif
#if FEATURES >= 11
#define F_L4_SRC_PORT 1
#endif
#if FEATURES >= 12
#define F_L4_DST_PORT 1
#endif
#if FEATURES >= 13
#define F_TCP_FLAGS 1
#endif
#if FEATURES >= 14
#define F_FIRST_SWITCHED 1
#endif
#if FEATURES >= 15
#define F_LAST_SWITCHED 1
#endif

#if defined(F_L4_SRC_PORT) || defined(F_L4_DST_PORT)
#define NEEDS_PORTS
#endif
#if defined(NEEDS_PORTS) || defined(F_TCP_FLAGS)
#define NEEDS_L4
#endif
#if defined(NEEDS_L4) || defined(F_IPV4_SRC_ADDR) || defined(F_IPV4_DST_ADDR) || \
	defined(F_PROTOCOL) || defined(F_SRC_TOS)
#define NEEDS_L3
#endif
#if defined(F_IPV4_SRC_ADDR) || defined(F_IPV4_DST_ADDR) || defined(F_PROTOCOL) || defined(NEEDS_PORTS)
#define HAS_KEY
#endif
#if defined(F_INPUT_SNMP) || defined(F_OUTPUT_SNMP) || defined(F_SRC_AS) || defined(F_DST_AS) || \
	defined(F_IN_PKTS) || defined(F_IN_BYTES) || defined(F_SRC_TOS) || defined(F_TCP_FLAGS) || \
	defined(F_FIRST_SWITCHED) || defined(F_LAST_SWITCHED)
#define HAS_VALUE
#endif

#ifndef FLOWS
#define FLOWS 65536
#endif
#define MAX_TAGS 2
#define MAX_HEADERS 96	/* Ethernet, two tags, IPv4 with options, 14 bytes of TCP */

#define TAG(rendering) __attribute__((btf_decl_tag(rendering)))

struct flow {
#ifdef F_IPV4_SRC_ADDR
	__be32 IPV4_SRC_ADDR TAG("ipv4");
#endif
#ifdef F_IPV4_DST_ADDR
	__be32 IPV4_DST_ADDR TAG("ipv4");
#endif
#ifdef F_PROTOCOL
	__u8 PROTOCOL;
#endif
#ifdef F_L4_SRC_PORT
	__be16 L4_SRC_PORT TAG("be16");
#endif
#ifdef F_L4_DST_PORT
	__be16 L4_DST_PORT TAG("be16");
#endif
#ifndef HAS_KEY
	__u8 all;
#endif
};

struct features {
	/* The first four are zero here; a router would find them once per flow. */
#ifdef F_INPUT_SNMP
	__u32 INPUT_SNMP;
#endif
#ifdef F_OUTPUT_SNMP
	__u32 OUTPUT_SNMP;
#endif
#ifdef F_SRC_AS
	__u32 SRC_AS;
#endif
#ifdef F_DST_AS
	__u32 DST_AS;
#endif
#ifdef F_IN_PKTS
	__u64 IN_PKTS;
#endif
#ifdef F_IN_BYTES
	__u64 IN_BYTES;
#endif
#ifdef F_SRC_TOS
	__u8 SRC_TOS;
#endif
	/* Flags have a word: there is no atomic OR on a byte. */
#ifdef F_TCP_FLAGS
	__u32 TCP_FLAGS;
#endif
#ifdef F_FIRST_SWITCHED
	__u64 FIRST_SWITCHED TAG("ktime");
#endif
#ifdef F_LAST_SWITCHED
	__u64 LAST_SWITCHED TAG("ktime");
#endif
#ifndef HAS_VALUE
	__u8 seen;
#endif
};

/* Packets that are in no flow. */
struct unaccounted {
	__u64 table_full;
	__u64 not_ipv4;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct flow);
	__type(value, struct features);
	__uint(max_entries, FLOWS);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct unaccounted);
	__uint(max_entries, 1);
} unaccounted SEC(".maps");

/*
 * The values that one packet adds to its flow. They are apart from the key, which must be in memory, so that they stay
 * in registers; values that no feature needs cost nothing.
 */
struct packet {
	__u32 length;
	__u64 now;
	__u8 tos;
	__u8 tcp_flags;
};

static __always_inline struct unaccounted *in_no_flow(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&unaccounted, &zero);
}

#ifdef NEEDS_L4
/*
 * Ports of TCP, UDP, UDP-Lite, DCCP and SCTP; of ICMP, as in NetFlow, type * 256 + code as destination port.
 * Zero for everything else, for later fragments and for what is cut off.
 */
static __always_inline void parse_l4(void *header, void *data_end, __u8 protocol, struct flow *flow,
				     struct packet *packet)
{
#ifdef NEEDS_PORTS
	__be16 *ports = header;
#endif

	switch (protocol) {
	case 6:
#ifdef F_TCP_FLAGS
		if (header + 14 <= data_end)
			packet->tcp_flags = ((__u8 *)header)[13];
#endif
	case 17:
	case 33:
	case 132:
	case 136:
#ifdef NEEDS_PORTS
		if ((void *)(ports + 2) > data_end)
			return;
#ifdef F_L4_SRC_PORT
		flow->L4_SRC_PORT = ports[0];
#endif
#ifdef F_L4_DST_PORT
		flow->L4_DST_PORT = ports[1];
#endif
#endif
		return;
	case 1:
#ifdef F_L4_DST_PORT
		if ((void *)(ports + 1) <= data_end)
			flow->L4_DST_PORT = ports[0];
#endif
		return;
	}
}
#endif

#ifdef NEEDS_L3
struct tag {
	__be16 tci;
	__be16 ether_type;
};

/* Returns 1 for an IPv4 packet, 0 for any other. */
static __always_inline int parse(void *data, void *data_end, struct flow *flow, struct packet *packet)
{
	struct ethhdr *eth = data;
	void *header = eth + 1;
	__be16 ether_type;
	struct iphdr *ip;

	if (header > data_end)
		return 0;
	ether_type = eth->h_proto;
	for (int i = 0; i < MAX_TAGS; i++) {
		struct tag *tag = header;

		if (ether_type != bpf_htons(ETH_P_8021Q) && ether_type != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > data_end)
			return 0;
		ether_type = tag->ether_type;
		header = tag + 1;
	}
	ip = header;
	if (ether_type != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > data_end || ip->ihl < 5)
		return 0;
#ifdef F_IPV4_SRC_ADDR
	flow->IPV4_SRC_ADDR = ip->saddr;
#endif
#ifdef F_IPV4_DST_ADDR
	flow->IPV4_DST_ADDR = ip->daddr;
#endif
#ifdef F_PROTOCOL
	flow->PROTOCOL = ip->protocol;
#endif
#ifdef F_SRC_TOS
	packet->tos = ip->tos;
#endif
#ifdef NEEDS_L4
	if (!(ip->frag_off & bpf_htons(0x1fff)))
		parse_l4(header + ip->ihl * 4, data_end, ip->protocol, flow, packet);
#endif
	return 1;
}
#endif

static __always_inline void add(struct features *features, const struct packet *packet)
{
#ifdef F_IN_PKTS
	__sync_fetch_and_add(&features->IN_PKTS, 1);
#endif
#ifdef F_IN_BYTES
	__sync_fetch_and_add(&features->IN_BYTES, packet->length);
#endif
#ifdef F_TCP_FLAGS
	/* Flags that are set already need no atomic OR, only a plain read. */
	if (packet->tcp_flags & ~features->TCP_FLAGS)
		__sync_fetch_and_or(&features->TCP_FLAGS, packet->tcp_flags);
#endif
#ifdef F_LAST_SWITCHED
	features->LAST_SWITCHED = packet->now;
#endif
}

static __always_inline void first(struct features *features, const struct packet *packet)
{
#ifdef F_IN_PKTS
	features->IN_PKTS = 1;
#endif
#ifdef F_IN_BYTES
	features->IN_BYTES = packet->length;
#endif
#ifdef F_TCP_FLAGS
	features->TCP_FLAGS = packet->tcp_flags;
#endif
#ifdef F_SRC_TOS
	features->SRC_TOS = packet->tos;
#endif
#ifdef F_FIRST_SWITCHED
	features->FIRST_SWITCHED = packet->now;
#endif
#ifdef F_LAST_SWITCHED
	features->LAST_SWITCHED = packet->now;
#endif
}

static __always_inline void account(const struct flow *flow, struct packet *packet)
{
	struct features *features = bpf_map_lookup_elem(&flows, flow);

#ifdef F_LAST_SWITCHED
	packet->now = bpf_ktime_get_ns();
#endif
	if (features) {
		add(features, packet);
		return;
	}
#if defined(F_FIRST_SWITCHED) && !defined(F_LAST_SWITCHED)
	packet->now = bpf_ktime_get_ns();
#endif
	struct features new;

	__builtin_memset(&new, 0, sizeof(new));
	first(&new, packet);
	if (!bpf_map_update_elem(&flows, flow, &new, BPF_NOEXIST))
		return;
	/* Another CPU has inserted the flow, or the table is full. */
	features = bpf_map_lookup_elem(&flows, flow);
	if (features) {
		add(features, packet);
	} else {
		struct unaccounted *unaccounted = in_no_flow();

		if (unaccounted)
			unaccounted->table_full++;
	}
}

static __always_inline void handle(void *data, void *data_end, struct packet *packet)
{
	struct flow flow;

	/* Padding is part of the key. */
	__builtin_memset(&flow, 0, sizeof(flow));
#ifdef NEEDS_L3
	if (!parse(data, data_end, &flow, packet)) {
		struct unaccounted *unaccounted = in_no_flow();

		if (unaccounted)
			unaccounted->not_ipv4++;
		return;
	}
#endif
	account(&flow, packet);
}

#ifdef TC
SEC("tc")
int flow_features(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct packet packet = {};

#ifdef F_IN_BYTES
	/* The length includes the tag that the network card took out. */
	packet.length = skb->len + (skb->vlan_present ? 4 : 0);
#endif
#ifdef NEEDS_L3
	/* Headers may be outside the linear part; ask for them only then. */
	if (data + MAX_HEADERS > data_end && skb->len > data_end - data) {
		bpf_skb_pull_data(skb, skb->len < MAX_HEADERS ? skb->len : MAX_HEADERS);
		data = (void *)(long)skb->data;
		data_end = (void *)(long)skb->data_end;
	}
#endif
	handle(data, data_end, &packet);
	return TC_ACT_UNSPEC;
}
#else
SEC("xdp")
int flow_features(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct packet packet = {};

#ifdef F_IN_BYTES
#ifdef NO_FRAGS
	packet.length = data_end - data;
#else
	packet.length = bpf_xdp_get_buff_len(ctx);
#endif
#endif
	handle(data, data_end, &packet);
	return XDP_PASS;
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
