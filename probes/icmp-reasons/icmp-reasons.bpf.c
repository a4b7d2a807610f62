// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * icmp-reasons: counts ICMP and ICMPv6 messages by reason, and errors by the destination of the packet inside.
 *
 *	ERRORS=n	entries of the LRU map of errors, by reason, destination, protocol and port (default 4096)
 */
#include <twinprobe.h>

#ifndef ERRORS
#define ERRORS 4096
#endif

/* A reason has the IP version, type and code. */
#define V4(type, code) (4 << 16 | (type) << 8 | (code))
#define V6(type, code) (6 << 16 | (type) << 8 | (code))

/* Metrics show other reasons as numbers. */
enum reason {
	ECHO_REPLY = V4(0, 0),
	NETWORK_UNREACHABLE = V4(3, 0),
	HOST_UNREACHABLE = V4(3, 1),
	PROTOCOL_UNREACHABLE = V4(3, 2),
	PORT_UNREACHABLE = V4(3, 3),
	FRAGMENTATION_NEEDED = V4(3, 4),
	SOURCE_ROUTE_FAILED = V4(3, 5),
	NETWORK_UNKNOWN = V4(3, 6),
	HOST_UNKNOWN = V4(3, 7),
	HOST_ISOLATED = V4(3, 8),
	NETWORK_PROHIBITED = V4(3, 9),
	HOST_PROHIBITED = V4(3, 10),
	NETWORK_UNREACHABLE_FOR_TOS = V4(3, 11),
	HOST_UNREACHABLE_FOR_TOS = V4(3, 12),
	COMMUNICATION_PROHIBITED = V4(3, 13),
	PRECEDENCE_VIOLATION = V4(3, 14),
	PRECEDENCE_CUTOFF = V4(3, 15),
	SOURCE_QUENCH = V4(4, 0),
	REDIRECT_FOR_NETWORK = V4(5, 0),
	REDIRECT_FOR_HOST = V4(5, 1),
	REDIRECT_FOR_TOS_AND_NETWORK = V4(5, 2),
	REDIRECT_FOR_TOS_AND_HOST = V4(5, 3),
	ECHO_REQUEST = V4(8, 0),
	ROUTER_ADVERTISEMENT = V4(9, 0),
	ROUTER_SOLICITATION = V4(10, 0),
	TTL_EXCEEDED = V4(11, 0),
	REASSEMBLY_TIME_EXCEEDED = V4(11, 1),
	PARAMETER_PROBLEM = V4(12, 0),
	OPTION_MISSING = V4(12, 1),
	BAD_LENGTH = V4(12, 2),
	TIMESTAMP_REQUEST = V4(13, 0),
	TIMESTAMP_REPLY = V4(14, 0),
	ADDRESS_MASK_REQUEST = V4(17, 0),
	ADDRESS_MASK_REPLY = V4(18, 0),
	V6_NO_ROUTE = V6(1, 0),
	V6_COMMUNICATION_PROHIBITED = V6(1, 1),
	V6_BEYOND_SCOPE = V6(1, 2),
	V6_ADDRESS_UNREACHABLE = V6(1, 3),
	V6_PORT_UNREACHABLE = V6(1, 4),
	V6_SOURCE_PROHIBITED = V6(1, 5),
	V6_ROUTE_REJECTED = V6(1, 6),
	V6_SOURCE_ROUTE_FAILED = V6(1, 7),
	V6_PACKET_TOO_BIG = V6(2, 0),
	V6_HOP_LIMIT_EXCEEDED = V6(3, 0),
	V6_REASSEMBLY_TIME_EXCEEDED = V6(3, 1),
	V6_BAD_HEADER_FIELD = V6(4, 0),
	V6_UNKNOWN_NEXT_HEADER = V6(4, 1),
	V6_UNKNOWN_OPTION = V6(4, 2),
	V6_ECHO_REQUEST = V6(128, 0),
	V6_ECHO_REPLY = V6(129, 0),
	V6_LISTENER_QUERY = V6(130, 0),
	V6_LISTENER_REPORT = V6(131, 0),
	V6_LISTENER_DONE = V6(132, 0),
	V6_ROUTER_SOLICITATION = V6(133, 0),
	V6_ROUTER_ADVERTISEMENT = V6(134, 0),
	V6_NEIGHBOR_SOLICITATION = V6(135, 0),
	V6_NEIGHBOR_ADVERTISEMENT = V6(136, 0),
	V6_REDIRECT = V6(137, 0),
	V6_LISTENER_REPORT_2 = V6(143, 0),
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

/* Reason of an error, with destination, protocol and port of the packet inside. */
struct subject {
	enum reason reason;
	tp_ip destination;
	__u32 protocol TP_AS(protocol);
	__u32 port;
};

struct error {
	__u64 messages_total;
	__u32 mtu;		/* only for FRAGMENTATION_NEEDED and V6_PACKET_TOO_BIG */
	tp_ip reporter;		/* sender of the last message */
};

struct malformed {
	__u64 cut_off_total;		/* the message ends within its header */
	__u64 no_packet_total;		/* an error without a packet inside */
	__u64 wrong_family_total;	/* ICMP over IPv6, or ICMPv6 over IPv4 */
};

TP_PERCPU_HASH(messages, enum reason, struct counters, 512);
TP_LRU_HASH(errors, struct subject, struct error, ERRORS);
TP_PERCPU_ARRAY(malformed, struct malformed, 1);

/* Tells whether a set of bits contains a number. Hides it from clang, which would make a branch for each member. */
static __always_inline int is_in(__u64 set, __u32 number)
{
	set = set >> (number & 63) & (number < 64);
	asm volatile("" : "+r"(set));
	return set;
}

/* Tells whether a message is an error. Errors contain the packet that caused them. */
static __always_inline int is_error(const struct tp_packet *packet)
{
	if (packet->version == 6)
		return packet->icmp_type < 128;
	return is_in(1 << 3 | 1 << 4 | 1 << 5 | 1 << 11 | 1 << 12, packet->icmp_type);
}

static __always_inline int has_ports(__u32 protocol)
{
	return is_in(1ULL << IPPROTO_TCP | 1ULL << IPPROTO_UDP | 1ULL << IPPROTO_DCCP, protocol) ||
	       is_in(1ULL << (IPPROTO_SCTP - 128) | 1ULL << (IPPROTO_UDPLITE - 128), protocol - 128);
}

/* Reads the packet inside, which may end 8 bytes after its IP header. Returns 0 if there is none. */
static __always_inline int read_subject(const struct tp_packet *packet, struct subject *subject)
{
	__u32 offset = packet->payload;
	int is_later_fragment = 0;
	__be16 ports[2] = {};

	if (packet->version == 4) {
		struct iphdr ip = {};

		if (packet->payload_length < sizeof(ip) || !tp_load(packet, offset, &ip) || ip.version != 4 || ip.ihl < 5)
			return 0;
		subject->destination = tp_mapped(ip.daddr);
		subject->protocol = ip.protocol;
		is_later_fragment = ip.frag_off & bpf_htons(0x1fff);
		offset += ip.ihl * 4;
	} else {
		struct ipv6hdr ip = {};

		if (packet->payload_length < sizeof(ip) || !tp_load(packet, offset, &ip) || ip.version != 6)
			return 0;
		subject->destination = *(tp_ip *)&ip.daddr;
		subject->protocol = ip.nexthdr;
		offset += sizeof(ip);
	}
	if (has_ports(subject->protocol) && !is_later_fragment &&
	    offset + sizeof(ports) <= packet->payload + packet->payload_length && tp_load(packet, offset, &ports))
		subject->port = bpf_ntohs(ports[1]);
	return 1;
}

static __always_inline __u32 mtu_of(const struct tp_packet *packet, enum reason reason)
{
	struct tp_icmp_header *icmp = tp_icmp(packet);

	if (!icmp)
		return 0;
	if (reason == V6_PACKET_TOO_BIG)
		return bpf_ntohl(icmp->rest);
	return reason == FRAGMENTATION_NEEDED ? bpf_ntohl(icmp->rest) & 0xffff : 0;
}

TP_PROBE(count_messages, packet)
{
	struct malformed *bad = tp_at_index(malformed, 0);
	struct subject subject = {};
	struct error *error;
	enum reason reason;

	tp_parse(packet);
	if (!bad || (packet->protocol != IPPROTO_ICMP && packet->protocol != TP_ICMPV6))
		return TP_PASS;
	if ((packet->protocol == TP_ICMPV6) != (packet->version == 6)) {
		bad->wrong_family_total++;
		return TP_PASS;
	}
	if (!packet->l4 || packet->payload > packet->l3 + packet->ip_length) {
		/* Later fragments lack the header and are not malformed. */
		if (packet->l4 || packet->error)
			bad->cut_off_total++;
		return TP_PASS;
	}
	reason = packet->version << 16 | packet->icmp_type << 8 | packet->icmp_code;
	tp_count_frames(messages, &reason, tp_segments(packet), tp_length(packet));
	if (!is_error(packet))
		return TP_PASS;
	subject.reason = reason;
	if (!read_subject(packet, &subject)) {
		bad->no_packet_total++;
		return TP_PASS;
	}
	error = tp_get(errors, &subject);
	if (error) {
		tp_add(&error->messages_total, 1);
		error->mtu = mtu_of(packet, reason);
		error->reporter = tp_source(packet);
	}
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
