// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * flow-features: a flow table with up to 15 NetFlow v9 features. Features that
 * are not selected cost nothing.
 *
 * Defines that select features:
 *   FEATURES=n     features 1 to n of the list below (default 15)
 *   F_<NAME>=1     this feature, alone or in addition to FEATURES
 *
 * The key contains the selected features of 7, 8, 9, 11 and 12. Without any of
 * them, all packets are one flow. Features 1-6 need no parsing, 7-10 need the
 * IP header, and 11-13 the transport header. IPv6 flows have a table of their
 * own with the same features; 7 and 8 are IPv6 addresses there.
 *
 * More features, which FEATURES never selects:
 *   F_IN_OCTETS=1    bytes of IP packets without link layer and padding, as
 *                    NetFlow defines IN_BYTES
 *   F_END_REASON=1   flowEndReason of IPFIX: END_OF_FLOW (3) after FIN or RST,
 *                    ACTIVE_TIMEOUT (2) for a flow that continues
 *   F_IDLE_GAPS=1    number of pauses longer than INACTIVE seconds (default
 *                    15): how often an inactive timeout would cut the flow
 *   BIFLOW=1         both directions share an entry (RFC 5103). REVERSE_ fields
 *                    count the direction opposite to the first packet. Needs
 *                    7, 8, 11 and 12
 *
 * Further defines:
 *   TC             a TC program instead of an XDP program
 *   FLOWS=n        entries of the IPv4 table (default 65536)
 *   FLOWS_IPV6=n   entries of the IPv6 table (default 4096)
 *   NO_FRAGS       an XDP program for packets of a single buffer: for kernels
 *                  before 5.18, or beside other such programs
 *
 * TCP_FLAGS uses an atomic OR: clang needs -mcpu=v3 if it runs by hand.
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

#if defined(BIFLOW) && !(defined(F_IPV4_SRC_ADDR) && defined(F_IPV4_DST_ADDR) && defined(F_L4_SRC_PORT) && \
			 defined(F_L4_DST_PORT))
#error BIFLOW needs the features IPV4_SRC_ADDR, IPV4_DST_ADDR, L4_SRC_PORT and L4_DST_PORT
#undef BIFLOW
#endif
#ifndef INACTIVE
#define INACTIVE 15
#endif

#if defined(F_IN_PKTS) || defined(F_IN_BYTES) || defined(F_IN_OCTETS)
#define NEEDS_FRAMES
#endif
#if defined(F_TCP_FLAGS) || defined(F_END_REASON) || defined(BIFLOW)
#define NEEDS_FLAGS
#endif
#if defined(F_LAST_SWITCHED) || defined(F_IDLE_GAPS)
#define NEEDS_LAST
#endif

#if defined(TC) && defined(NEEDS_FRAMES)
#ifndef TWINPROBE_TC
#define TWINPROBE_TC 1
#endif
/* A packet may stand for several frames. */
#include <twinprobe/packet.h>
#include <twinprobe/segments.h>
#endif

#if defined(F_L4_SRC_PORT) || defined(F_L4_DST_PORT)
#define NEEDS_PORTS
#endif
#if defined(NEEDS_PORTS) || defined(NEEDS_FLAGS)
#define NEEDS_L4
#endif
#if defined(NEEDS_L4) || defined(F_IPV4_SRC_ADDR) || defined(F_IPV4_DST_ADDR) || \
	defined(F_PROTOCOL) || defined(F_SRC_TOS) || defined(F_IN_OCTETS)
#define NEEDS_L3
#endif
#if defined(F_IPV4_SRC_ADDR) || defined(F_IPV4_DST_ADDR) || defined(F_PROTOCOL) || defined(NEEDS_PORTS)
#define HAS_KEY
#endif
#if defined(F_INPUT_SNMP) || defined(F_OUTPUT_SNMP) || defined(F_SRC_AS) || defined(F_DST_AS) || \
	defined(F_IN_PKTS) || defined(F_IN_BYTES) || defined(F_SRC_TOS) || defined(F_TCP_FLAGS) || \
	defined(F_FIRST_SWITCHED) || defined(F_LAST_SWITCHED) || defined(F_IN_OCTETS) || defined(F_END_REASON) || \
	defined(F_IDLE_GAPS)
#define HAS_VALUE
#endif

#ifndef FLOWS
#define FLOWS 65536
#endif
#if !defined(NEEDS_L3)
/* Without parsing, all packets count in the IPv4 table. */
#undef FLOWS_IPV6
#define FLOWS_IPV6 1
#elif !defined(FLOWS_IPV6)
#define FLOWS_IPV6 4096
#endif
#define MAX_TAGS 2
#define MAX_EXTENSIONS 4
#define MAX_HEADERS 128	/* Ethernet, two tags, IPv4 options or IPv6 extension headers, 14 bytes of TCP */

#define TAG(rendering) __attribute__((btf_decl_tag(rendering)))

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

struct flow {
#ifdef F_IPV4_SRC_ADDR
	__be32 IPV4_SRC_ADDR TAG("ipv4");
#endif
#ifdef F_IPV4_DST_ADDR
	__be32 IPV4_DST_ADDR TAG("ipv4");
#endif
#ifdef F_PROTOCOL
	__u8 PROTOCOL TAG("protocol");
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

struct flow_ipv6 {
#ifdef F_IPV4_SRC_ADDR
	__be32 IPV6_SRC_ADDR[4] TAG("ipv6");
#endif
#ifdef F_IPV4_DST_ADDR
	__be32 IPV6_DST_ADDR[4] TAG("ipv6");
#endif
#ifdef F_PROTOCOL
	__u8 PROTOCOL TAG("protocol");
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

/* flowEndReason of IPFIX: the window cuts a flow that continues, or TCP has ended it. */
enum end_reason {
	ACTIVE_TIMEOUT = 2,
	END_OF_FLOW = 3,
};

struct features {
	/* The first four stay 0, because only a router knows them. */
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
	/* Flags have 32 bits, because a byte has no atomic OR. */
#ifdef F_TCP_FLAGS
	__u32 TCP_FLAGS TAG("tcp_flags");
#endif
#ifdef F_FIRST_SWITCHED
	__u64 FIRST_SWITCHED TAG("ktime");
#endif
#ifdef NEEDS_LAST
	__u64 LAST_SWITCHED TAG("ktime");
#endif
#ifdef F_IN_OCTETS
	__u64 IN_OCTETS;
#endif
#ifdef F_END_REASON
	enum end_reason END_REASON;
#endif
#ifdef F_IDLE_GAPS
	__u32 IDLE_GAPS;
#endif
#ifdef BIFLOW
#ifdef F_IN_PKTS
	__u64 REVERSE_IN_PKTS;
#endif
#ifdef F_IN_BYTES
	__u64 REVERSE_IN_BYTES;
#endif
#ifdef F_IN_OCTETS
	__u64 REVERSE_IN_OCTETS;
#endif
#ifdef F_TCP_FLAGS
	__u32 REVERSE_TCP_FLAGS TAG("tcp_flags");
#endif
#endif
#ifndef HAS_VALUE
	__u8 seen;
#endif
};

/* Counts packets outside IPv4 flows. */
struct unaccounted {
	__u64 table_full;
	__u64 not_ipv4;
};

/* Counts packets other than IPv4 outside IPv6 flows. */
struct unaccounted_ipv6 {
	__u64 table_full;
	__u64 not_ip;
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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct flow_ipv6);
	__type(value, struct features);
	__uint(max_entries, FLOWS_IPV6);
} flows_ipv6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct unaccounted_ipv6);
	__uint(max_entries, 1);
} unaccounted_ipv6 SEC(".maps");

/*
 * Values that one packet adds to its flow. The key must be in memory. Values are apart from it, and so clang keeps
 * them in registers and leaves out unused ones.
 */
struct packet {
	__u32 frames;
	__u32 length;
	__u32 octets;
	__u32 link_layer;	/* bytes of Ethernet header and tags on the wire */
	__u64 now;
	__u8 tos;
	__u8 tcp_flags;
};

#define IN_NO_FLOW(MAP, COUNTER)						\
	({									\
		__u32 zero_ = 0;						\
		struct MAP *MAP##_ = bpf_map_lookup_elem(&MAP, &zero_);		\
										\
		if (MAP##_)							\
			MAP##_->COUNTER++;					\
	})

#ifdef NEEDS_L4
/*
 * Reads ports of TCP, UDP, UDP-Lite, DCCP and SCTP. ICMP (protocol `icmp`) has type * 256 + code as destination port,
 * as in NetFlow. Ports stay 0 for other protocols, later fragments and truncated headers. NULL: port not selected.
 */
static __always_inline void parse_l4(void *header, void *data_end, __u8 protocol, __u8 icmp, __be16 *source,
				     __be16 *destination, struct packet *packet)
{
	__be16 *ports = header;

	switch (protocol) {
	case 6:
#ifdef NEEDS_FLAGS
		if (header + 14 <= data_end)
			packet->tcp_flags = ((__u8 *)header)[13];
#endif
	case 17:
	case 33:
	case 132:
	case 136:
		if ((!source && !destination) || (void *)(ports + 2) > data_end)
			return;
		if (source)
			*source = ports[0];
		if (destination)
			*destination = ports[1];
		return;
	}
	if (protocol == icmp && destination && (void *)(ports + 1) <= data_end)
		*destination = ports[0];
}

/* Address of a port in a flow, or NULL if it is not selected. */
#ifdef F_L4_SRC_PORT
#define SOURCE_PORT(FLOW) &(FLOW)->L4_SRC_PORT
#else
#define SOURCE_PORT(FLOW) 0
#endif
#ifdef F_L4_DST_PORT
#define DESTINATION_PORT(FLOW) &(FLOW)->L4_DST_PORT
#else
#define DESTINATION_PORT(FLOW) 0
#endif
#endif

#ifdef NEEDS_L3
struct tag {
	__be16 tci;
	__be16 ether_type;
};

/* Returns the header after Ethernet and tags, or NULL if the packet ends before. */
static __always_inline void *parse_l2(void *data, void *data_end, __be16 *ether_type, struct packet *packet)
{
	struct ethhdr *eth = data;
	void *header = eth + 1;

	if (header > data_end)
		return 0;
	*ether_type = eth->h_proto;
	packet->link_layer += sizeof(*eth);
	for (int i = 0; i < MAX_TAGS; i++) {
		struct tag *tag = header;

		if (*ether_type != bpf_htons(ETH_P_8021Q) && *ether_type != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > data_end)
			return 0;
		*ether_type = tag->ether_type;
		packet->link_layer += sizeof(*tag);
		header = tag + 1;
	}
	return header;
}

#ifdef F_IN_OCTETS
/*
 * Returns the IP bytes of all frames. For several frames the length in the IP header is too small, because each frame
 * has headers of its own.
 */
static __always_inline __u32 octets(const struct packet *packet, __u32 length)
{
#ifdef TC
	if (packet->frames > 1)
		return packet->length - packet->frames * packet->link_layer;
#endif
	return length;
}
#endif

/* Returns 1 for an IPv4 header, 0 for any other. */
static __always_inline int parse_ipv4(void *header, void *data_end, struct flow *flow, struct packet *packet)
{
	struct iphdr *ip = header;

	if ((void *)(ip + 1) > data_end || ip->ihl < 5)
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
#ifdef F_IN_OCTETS
	packet->octets = octets(packet, bpf_ntohs(ip->tot_len));
#endif
#ifdef NEEDS_L4
	if (!(ip->frag_off & bpf_htons(0x1fff)))
		parse_l4(header + ip->ihl * 4, data_end, ip->protocol, 1, SOURCE_PORT(flow), DESTINATION_PORT(flow), packet);
#endif
	return 1;
}

#if defined(F_PROTOCOL) || defined(NEEDS_L4)
/*
 * Skips extension headers, and sets the protocol of the next header. Returns that header, or NULL for a later fragment,
 * a truncated packet or too many headers.
 */
static __always_inline void *pass_extensions(void *header, void *data_end, __u8 *protocol)
{
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		__u8 *extension = header;
		__u32 length;

		switch (*protocol) {
		case 0:		/* hop by hop */
		case 43:	/* routing */
		case 44:	/* fragment */
		case 51:	/* authentication */
		case 60:	/* destination */
			break;
		default:
			return header;
		}
		if (header + 8 > data_end)
			return 0;
		length = 8 + extension[1] * 8;
		if (*protocol == 51) {
			length = 8 + extension[1] * 4;
		} else if (*protocol == 44) {
			length = 8;
			if (*(__be16 *)(extension + 2) & bpf_htons(0xfff8)) {
				*protocol = extension[0];
				return 0;
			}
		}
		*protocol = extension[0];
		header += length;
	}
	return 0;
}
#endif

/* Returns 1 for an IPv6 header, 0 for any other. */
static __always_inline int parse_ipv6(void *header, void *data_end, struct flow_ipv6 *flow, struct packet *packet)
{
	struct ipv6hdr *ip = header;

	if ((void *)(ip + 1) > data_end || ip->version != 6)
		return 0;
#ifdef F_IPV4_SRC_ADDR
	__builtin_memcpy(flow->IPV6_SRC_ADDR, &ip->saddr, sizeof(ip->saddr));
#endif
#ifdef F_IPV4_DST_ADDR
	__builtin_memcpy(flow->IPV6_DST_ADDR, &ip->daddr, sizeof(ip->daddr));
#endif
#ifdef F_SRC_TOS
	packet->tos = bpf_ntohs(*(__be16 *)ip) >> 4;
#endif
#ifdef F_IN_OCTETS
	packet->octets = octets(packet, sizeof(*ip) + bpf_ntohs(ip->payload_len));
#endif
#if defined(F_PROTOCOL) || defined(NEEDS_L4)
	__u8 protocol = ip->nexthdr;

	header = pass_extensions(ip + 1, data_end, &protocol);
#endif
#ifdef F_PROTOCOL
	flow->PROTOCOL = protocol;
#endif
#ifdef NEEDS_L4
	if (header)
		parse_l4(header, data_end, protocol, 58, SOURCE_PORT(flow), DESTINATION_PORT(flow), packet);
#endif
	return 1;
}
#endif

#define FLAG_FIN 1
#define FLAG_SYN 2
#define FLAG_RST 4
#define FLAG_ACK 16

/* Updates an existing flow: its time, and whether this packet ends it. */
static __always_inline void go_on(struct features *features, const struct packet *packet)
{
#ifdef F_END_REASON
	if (packet->tcp_flags & (FLAG_FIN | FLAG_RST))
		features->END_REASON = END_OF_FLOW;
	else if (packet->tcp_flags & FLAG_SYN)
		features->END_REASON = ACTIVE_TIMEOUT;
#endif
#ifdef F_IDLE_GAPS
	if (packet->now - features->LAST_SWITCHED > INACTIVE * 1000000000ULL && packet->now > features->LAST_SWITCHED)
		__sync_fetch_and_add(&features->IDLE_GAPS, 1);
#endif
#ifdef NEEDS_LAST
	features->LAST_SWITCHED = packet->now;
#endif
}

static __always_inline void add(struct features *features, const struct packet *packet)
{
#ifdef F_IN_PKTS
	__sync_fetch_and_add(&features->IN_PKTS, packet->frames);
#endif
#ifdef F_IN_BYTES
	__sync_fetch_and_add(&features->IN_BYTES, packet->length);
#endif
#ifdef F_IN_OCTETS
	__sync_fetch_and_add(&features->IN_OCTETS, packet->octets);
#endif
#ifdef F_TCP_FLAGS
	/* Most flags are already set, and a plain read costs less than an atomic OR. */
	if (packet->tcp_flags & ~features->TCP_FLAGS)
		__sync_fetch_and_or(&features->TCP_FLAGS, packet->tcp_flags);
#endif
	go_on(features, packet);
}

#ifdef BIFLOW
/* Adds a packet of the other direction. */
static __always_inline void add_reverse(struct features *features, const struct packet *packet)
{
#ifdef F_IN_PKTS
	__sync_fetch_and_add(&features->REVERSE_IN_PKTS, packet->frames);
#endif
#ifdef F_IN_BYTES
	__sync_fetch_and_add(&features->REVERSE_IN_BYTES, packet->length);
#endif
#ifdef F_IN_OCTETS
	__sync_fetch_and_add(&features->REVERSE_IN_OCTETS, packet->octets);
#endif
#ifdef F_TCP_FLAGS
	if (packet->tcp_flags & ~features->REVERSE_TCP_FLAGS)
		__sync_fetch_and_or(&features->REVERSE_TCP_FLAGS, packet->tcp_flags);
#endif
	go_on(features, packet);
}
#endif

static __always_inline void first(struct features *features, const struct packet *packet)
{
#ifdef F_IN_PKTS
	features->IN_PKTS = packet->frames;
#endif
#ifdef F_IN_BYTES
	features->IN_BYTES = packet->length;
#endif
#ifdef F_IN_OCTETS
	features->IN_OCTETS = packet->octets;
#endif
#ifdef F_TCP_FLAGS
	features->TCP_FLAGS = packet->tcp_flags;
#endif
#ifdef F_END_REASON
	features->END_REASON = packet->tcp_flags & (FLAG_FIN | FLAG_RST) ? END_OF_FLOW : ACTIVE_TIMEOUT;
#endif
#ifdef F_SRC_TOS
	features->SRC_TOS = packet->tos;
#endif
#ifdef F_FIRST_SWITCHED
	features->FIRST_SWITCHED = packet->now;
#endif
#ifdef NEEDS_LAST
	features->LAST_SWITCHED = packet->now;
#endif
}

/*
 * Adds a packet to its flow. With BIFLOW, `back` is the key of the other direction, whose entry may take it. Returns 0
 * if the table is full.
 */
static __always_inline int account(void *table, const void *flow, const void *back, struct packet *packet)
{
	struct features *features = bpf_map_lookup_elem(table, flow);

#ifdef NEEDS_LAST
	packet->now = bpf_ktime_get_ns();
#endif
	if (features) {
		add(features, packet);
		return 1;
	}
#ifdef BIFLOW
	features = bpf_map_lookup_elem(table, back);
	if (features) {
		add_reverse(features, packet);
		return 1;
	}
#endif
#if defined(F_FIRST_SWITCHED) && !defined(NEEDS_LAST)
	packet->now = bpf_ktime_get_ns();
#endif
	struct features new;

	__builtin_memset(&new, 0, sizeof(new));
	first(&new, packet);
	if (!bpf_map_update_elem(table, flow, &new, BPF_NOEXIST))
		return 1;
	/* Another CPU has inserted the flow, or the table is full. */
	features = bpf_map_lookup_elem(table, flow);
	if (!features)
		return 0;
	add(features, packet);
	return 1;
}

#ifdef NEEDS_L3
static __always_inline void handle_ipv6(void *header, void *data_end, struct packet *packet)
{
	struct flow_ipv6 flow;

	__builtin_memset(&flow, 0, sizeof(flow));
	if (!parse_ipv6(header, data_end, &flow, packet)) {
		IN_NO_FLOW(unaccounted_ipv6, not_ip);
		return;
	}
#ifdef BIFLOW
	struct flow_ipv6 back;

	__builtin_memcpy(&back, &flow, sizeof(back));
	__builtin_memcpy(back.IPV6_SRC_ADDR, flow.IPV6_DST_ADDR, sizeof(back.IPV6_SRC_ADDR));
	__builtin_memcpy(back.IPV6_DST_ADDR, flow.IPV6_SRC_ADDR, sizeof(back.IPV6_DST_ADDR));
	back.L4_SRC_PORT = flow.L4_DST_PORT;
	back.L4_DST_PORT = flow.L4_SRC_PORT;
	if (!account(&flows_ipv6, &flow, &back, packet))
#else
	if (!account(&flows_ipv6, &flow, 0, packet))
#endif
		IN_NO_FLOW(unaccounted_ipv6, table_full);
}
#endif

static __always_inline void handle(void *data, void *data_end, struct packet *packet)
{
	struct flow flow;

	/* The key includes its padding. */
	__builtin_memset(&flow, 0, sizeof(flow));
#ifdef NEEDS_L3
	__be16 ether_type = 0;
	void *header = parse_l2(data, data_end, &ether_type, packet);

	if (!header || ether_type != bpf_htons(ETH_P_IP) || !parse_ipv4(header, data_end, &flow, packet)) {
		IN_NO_FLOW(unaccounted, not_ipv4);
		if (header && ether_type == bpf_htons(ETH_P_IPV6))
			handle_ipv6(header, data_end, packet);
		else
			IN_NO_FLOW(unaccounted_ipv6, not_ip);
		return;
	}
#endif
#ifdef BIFLOW
	struct flow back;

	__builtin_memcpy(&back, &flow, sizeof(back));
	back.IPV4_SRC_ADDR = flow.IPV4_DST_ADDR;
	back.IPV4_DST_ADDR = flow.IPV4_SRC_ADDR;
	back.L4_SRC_PORT = flow.L4_DST_PORT;
	back.L4_DST_PORT = flow.L4_SRC_PORT;
	if (!account(&flows, &flow, &back, packet))
#else
	if (!account(&flows, &flow, 0, packet))
#endif
		IN_NO_FLOW(unaccounted, table_full);
}

/* Only programs with a feature have its mark. */
static __always_inline void say_what_is_seen(void)
{
#ifdef F_IN_PKTS
	SEES("frames");
#endif
#if defined(F_IN_BYTES) || defined(F_IN_OCTETS)
	SEES("lengths");
#endif
#ifdef NEEDS_L3
	SEES("ethernet");
#endif
}

#ifdef TC
SEC("tc")
int flow_features(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
#ifdef NEEDS_FRAMES
	struct tp_packet whole = { .context = skb };
#endif
	struct packet packet = {};

	say_what_is_seen();
#ifdef NEEDS_L3
	/* Pulls headers into the linear part only if needed: the call is slow. */
	if (data + MAX_HEADERS > data_end && skb->len > data_end - data) {
		bpf_skb_pull_data(skb, skb->len < MAX_HEADERS ? skb->len : MAX_HEADERS);
		data = (void *)(long)skb->data;
		data_end = (void *)(long)skb->data_end;
	}
#endif
#if defined(F_IN_PKTS) || defined(F_IN_OCTETS)
	packet.frames = tp_segments(&whole);
#endif
#if defined(F_IN_BYTES) || defined(F_IN_OCTETS)
	packet.length = tp_length(&whole);
#endif
#ifdef F_IN_OCTETS
	/* The kernel keeps this tag outside the packet's bytes. */
	packet.link_layer = skb->vlan_present ? sizeof(struct tag) : 0;
#endif
	handle(data, data_end, &packet);
	return TC_ACT_UNSPEC;
}
#else
#ifdef NO_FRAGS
SEC("xdp")
#else
SEC("xdp.frags")
#endif
int flow_features(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct packet packet = {};

	say_what_is_seen();
	packet.frames = 1;
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
