/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Parsing of headers. twinprobe.h has the overview, twinprobe/packet.h the fields that are filled in. */
#ifndef TWINPROBE_PARSE_H
#define TWINPROBE_PARSE_H

#ifndef TP_TAGS
#define TP_TAGS 2
#endif
#ifndef TP_LABELS
#define TP_LABELS 4
#endif
#ifndef TP_EXTENSIONS
#define TP_EXTENSIONS 8
#endif

#define TP_ICMPV6 58

struct tp_tag {
	__be16 tci;
	__be16 ether_type;
};

static __always_inline int tp_fail(struct tp_packet *packet, enum tp_error error)
{
	packet->error = error;
	return 0;
}

/* MPLS does not name its content. By convention the first half byte is the version of IP. */
static __always_inline int tp_parse_labels(struct tp_packet *packet, void *header)
{
	__u32 entry = 0;
	int i;

	for (i = 0; i < TP_LABELS; i++) {
		__be32 *label = header;

		if ((void *)(label + 1) > packet->end)
			return tp_fail(packet, TP_CUT_OFF);
		entry = bpf_ntohl(*label);
		if (!i)
			packet->label = entry;
		packet->labels = i + 1;
		header = label + 1;
		if (entry & 0x100)
			break;
	}
	packet->l3 = tp_offset(packet, header);
	if (!(entry & 0x100))
		return tp_fail(packet, TP_TOO_DEEP);
	if (header + 1 > packet->end)
		return tp_fail(packet, TP_CUT_OFF);
	switch (*(__u8 *)header >> 4) {
	case 4:
		packet->ether_type = ETH_P_IP;
		break;
	case 6:
		packet->ether_type = ETH_P_IPV6;
		break;
	}
	return 1;
}

static __always_inline int tp_parse_ethernet(struct tp_packet *packet, __u32 offset)
{
	struct ethhdr *eth = tp_at(packet, offset, sizeof(*eth));
	void *header = eth + 1;
	int i;

	if (!eth)
		return tp_fail(packet, TP_CUT_OFF);
	packet->l2 = offset;
	packet->ether_type = bpf_ntohs(eth->h_proto);
#ifdef TWINPROBE_TC
	if (!offset && packet->context->vlan_present) {
		packet->vlan[0] = packet->context->vlan_tci;
		packet->tags = 1;
	}
#endif
	for (i = 0; i < TP_TAGS; i++) {
		struct tp_tag *tag = header;

		if (packet->ether_type != ETH_P_8021Q && packet->ether_type != ETH_P_8021AD)
			break;
		if ((void *)(tag + 1) > packet->end)
			return tp_fail(packet, TP_CUT_OFF);
		if (packet->tags == 0)
			packet->vlan[0] = bpf_ntohs(tag->tci);
		else if (packet->tags == 1)
			packet->vlan[1] = bpf_ntohs(tag->tci);
		packet->tags++;
		packet->ether_type = bpf_ntohs(tag->ether_type);
		header = tag + 1;
	}
	if (packet->ether_type == ETH_P_8021Q || packet->ether_type == ETH_P_8021AD) {
		packet->l3 = tp_offset(packet, header);
		return tp_fail(packet, TP_TOO_DEEP);
	}
#if TP_LABELS
	if (packet->ether_type == ETH_P_MPLS_UC || packet->ether_type == ETH_P_MPLS_MC)
		return tp_parse_labels(packet, header);
#endif
	packet->l3 = tp_offset(packet, header);
	return 1;
}

/* Returns 1 and the offset of the transport header in *l4 if there is one. */
static __always_inline int tp_parse_ipv4(struct tp_packet *packet, __u32 *l4)
{
	struct iphdr *ip = tp_at(packet, packet->l3, sizeof(*ip));
	__u16 fragment;

	if (!ip)
		return tp_fail(packet, TP_CUT_OFF);
	if (ip->version != 4 || ip->ihl < 5)
		return tp_fail(packet, TP_BAD_HEADER);
	packet->version = 4;
	packet->protocol = ip->protocol;
	packet->tos = ip->tos;
	packet->ttl = ip->ttl;
	packet->ip_length = bpf_ntohs(ip->tot_len);
	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & 0x1fff) {
		packet->fragment = TP_LATER_FRAGMENT;
		return 0;
	}
	if (fragment & 0x2000)
		packet->fragment = TP_FIRST_FRAGMENT;
	*l4 = tp_opaque(packet, packet->l3 + ip->ihl * 4);
	return 1;
}

/*
 * Hop-by-hop options, routing, fragment, authentication, destination options. The types are a set of bits, and clang
 * does not see the result, so that the verifier sees one branch here, not one for each type.
 */
static __always_inline int tp_is_extension(__u64 protocol)
{
	__u64 found = (1ULL << 0 | 1ULL << 43 | 1ULL << 44 | 1ULL << 51 | 1ULL << 60) >> (protocol & 63) & (protocol < 64);

	asm volatile("" : "+r"(found));
	return found;
}

static __always_inline int tp_parse_ipv6(struct tp_packet *packet, __u32 *l4)
{
	struct ipv6hdr *ip = tp_at(packet, packet->l3, sizeof(*ip));
	__u32 offset = tp_opaque(packet, packet->l3 + sizeof(*ip));
	__u8 next;
	int i;

	if (!ip)
		return tp_fail(packet, TP_CUT_OFF);
	if (ip->version != 6)
		return tp_fail(packet, TP_BAD_HEADER);
	packet->version = 6;
	packet->tos = bpf_ntohs(*(__be16 *)ip) >> 4;
	packet->ttl = ip->hop_limit;
	packet->ip_length = bpf_ntohs(ip->payload_len);
	/* The length is 0 in a jumbogram. */
	if (packet->ip_length)
		packet->ip_length += sizeof(*ip);
	next = ip->nexthdr;
	for (i = 0; i < TP_EXTENSIONS && tp_is_extension(next); i++) {
		__u8 *extension = tp_at(packet, offset, 8);

		packet->protocol = next;
		if (!extension)
			return tp_fail(packet, TP_CUT_OFF);
		packet->extensions = i + 1;
		if (next == 43)
			packet->srh = offset;
		if (next == 44) {
			__u16 fragment = bpf_ntohs(*(__be16 *)(extension + 2));

			offset += 8;
			next = extension[0];
			if (fragment & 0xfff8) {
				packet->protocol = next;
				packet->fragment = TP_LATER_FRAGMENT;
				return 0;
			}
			if (fragment & 1)
				packet->fragment = TP_FIRST_FRAGMENT;
		} else {
			offset += next == 51 ? (extension[1] + 2) * 4 : (extension[1] + 1) * 8;
			next = extension[0];
		}
		offset = tp_opaque(packet, offset);
	}
	packet->protocol = next;
	if (tp_is_extension(next))
		return tp_fail(packet, TP_TOO_DEEP);
	*l4 = offset;
	return 1;
}

static __always_inline void tp_parse_transport(struct tp_packet *packet, __u32 offset)
{
	__u32 length;
	__u8 *header;

	switch (packet->protocol) {
	case IPPROTO_TCP:
		header = tp_at(packet, offset, 20);
		if (!header)
			goto cut_off;
		length = (header[12] >> 4) * 4;
		if (length < 20) {
			packet->error = TP_BAD_HEADER;
			return;
		}
		packet->tcp_flags = header[13];
		break;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
		length = 8;
		header = tp_at(packet, offset, 8);
		break;
	case IPPROTO_SCTP:
		length = 12;
		header = tp_at(packet, offset, 12);
		break;
	case IPPROTO_DCCP:
		header = tp_at(packet, offset, 12);
		if (!header)
			goto cut_off;
		length = header[4] * 4;
		break;
	case IPPROTO_ICMP:
	case TP_ICMPV6:
		header = tp_at(packet, offset, 8);
		if (!header)
			goto cut_off;
		packet->icmp_type = header[0];
		packet->icmp_code = header[1];
		length = 8;
		goto payload;
	default:
		packet->l4 = offset;
		return;
	}
	if (!header)
		goto cut_off;
	packet->source_port = bpf_ntohs(((__be16 *)header)[0]);
	packet->destination_port = bpf_ntohs(((__be16 *)header)[1]);
payload:
	packet->l4 = offset;
	packet->payload = offset + length;
	length = packet->l3 + packet->ip_length;
	packet->payload_length = length > packet->payload ? length - packet->payload : 0;
	return;
cut_off:
	packet->error = TP_CUT_OFF;
}

/* Parses the header at l3, by ether_type. */
static __always_inline void tp_parse_network(struct tp_packet *packet)
{
	__u32 l4;

	if (packet->ether_type == ETH_P_IP) {
		if (!tp_parse_ipv4(packet, &l4))
			return;
	} else if (packet->ether_type == ETH_P_IPV6) {
		if (!tp_parse_ipv6(packet, &l4))
			return;
	} else {
		return;
	}
	/* Segmentation offload may leave the length out where it exceeds 16 bits. */
	if (!packet->ip_length)
		packet->ip_length = tp_buffer_length(packet) - packet->l3;
	tp_parse_transport(packet, l4);
}

static __always_inline void tp_forget(struct tp_packet *packet)
{
	packet->error = TP_WHOLE;
	packet->ether_type = 0;
	packet->tags = 0;
	packet->vlan[0] = 0;
	packet->vlan[1] = 0;
	packet->labels = 0;
	packet->label = 0;
	packet->version = 0;
	packet->protocol = 0;
	packet->tos = 0;
	packet->ttl = 0;
	packet->fragment = 0;
	packet->extensions = 0;
	packet->ip_length = 0;
	packet->source_port = 0;
	packet->destination_port = 0;
	packet->tcp_flags = 0;
	packet->icmp_type = 0;
	packet->icmp_code = 0;
	packet->payload_length = 0;
	packet->l2 = 0;
	packet->l3 = 0;
	packet->srh = 0;
	packet->l4 = 0;
	packet->payload = 0;
}

/* Parses Ethernet at this offset; with an EtherType, parses the header of that type. */
static __always_inline void tp_parse_at(struct tp_packet *packet, __u32 offset, __u16 ether_type)
{
#ifdef TWINPROBE_TC
	int more;

	/* Headers may be outside the linear part. Pulling them in may copy the packet, so only missing ones are pulled. */
#pragma clang loop unroll(disable)
	for (more = 0; more < 2; more++) {
#endif
		tp_forget(packet);
		if (ether_type) {
			packet->ether_type = ether_type;
			packet->l2 = packet->l3 = offset;
			tp_parse_network(packet);
		} else if (tp_parse_ethernet(packet, offset)) {
			tp_parse_network(packet);
		}
#ifdef TWINPROBE_TC
		if (packet->error != TP_CUT_OFF || packet->context->len <= packet->end - packet->data)
			return;
		bpf_skb_pull_data(packet->context, packet->context->len < TP_HEADERS ? packet->context->len : TP_HEADERS);
		tp_locate(packet);
	}
#endif
}

static __always_inline void tp_parse(struct tp_packet *packet)
{
	TP_SEES(ethernet);
	packet->tunnel_id = 0;
	packet->depth = 0;
	tp_parse_at(packet, 0, 0);
}

static __always_inline struct ethhdr *tp_ethernet(const struct tp_packet *packet)
{
	return packet->l2 == packet->l3 ? 0 : tp_at(packet, packet->l2, sizeof(struct ethhdr));
}

static __always_inline struct iphdr *tp_ipv4(const struct tp_packet *packet)
{
	return packet->version == 4 ? tp_at(packet, packet->l3, sizeof(struct iphdr)) : 0;
}

static __always_inline struct ipv6hdr *tp_ipv6(const struct tp_packet *packet)
{
	return packet->version == 6 ? tp_at(packet, packet->l3, sizeof(struct ipv6hdr)) : 0;
}

static __always_inline struct tp_arp_header *tp_arp(const struct tp_packet *packet)
{
	struct tp_arp_header *arp;

	if (packet->ether_type != ETH_P_ARP)
		return 0;
	arp = tp_at(packet, packet->l3, sizeof(*arp));
	/* Only ARP for IPv4 on Ethernet has addresses of these lengths. */
	return arp && arp->hardware_length == 6 && arp->protocol_length == 4 ? arp : 0;
}

static __always_inline void *tp_transport(const struct tp_packet *packet, __u8 protocol, __u32 size)
{
	return packet->l4 && packet->protocol == protocol ? tp_at(packet, packet->l4, size) : 0;
}

static __always_inline struct tcphdr *tp_tcp(const struct tp_packet *packet)
{
	return tp_transport(packet, IPPROTO_TCP, sizeof(struct tcphdr));
}

static __always_inline struct udphdr *tp_udp(const struct tp_packet *packet)
{
	return tp_transport(packet, IPPROTO_UDP, sizeof(struct udphdr));
}

static __always_inline struct tp_icmp_header *tp_icmp(const struct tp_packet *packet)
{
	if (!packet->l4 || (packet->protocol != IPPROTO_ICMP && packet->protocol != TP_ICMPV6))
		return 0;
	return tp_at(packet, packet->l4, sizeof(struct tp_icmp_header));
}

#endif
