/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The number of frames in a packet, and their bytes. twinprobe.h has the overview. */
#ifndef TWINPROBE_SEGMENTS_H
#define TWINPROBE_SEGMENTS_H

#ifdef TWINPROBE_TC
/* The position after the last parsed header, and the type of the next one: an EtherType, or TP_A_FRAME. */
struct tp_walk {
	__u32 offset;
	__be16 type;
	__u8 protocol;	/* of the header after IP */
	__u8 depth;	/* the number of entered tunnels */
	__u8 in_udp;	/* the last tunnel is in UDP */
};

#define TP_A_FRAME bpf_htons(ETH_P_TEB)

static __always_inline int tp_walk_ethernet(const struct tp_packet *packet, struct tp_walk *walk)
{
	__u8 *header = tp_at(packet, walk->offset, sizeof(struct ethhdr));
	int i;

	if (!header)
		return 0;
	walk->type = ((struct ethhdr *)header)->h_proto;
	walk->offset += sizeof(struct ethhdr);
	for (i = 0; i < 2 && (walk->type == bpf_htons(ETH_P_8021Q) || walk->type == bpf_htons(ETH_P_8021AD)); i++) {
		header = tp_at(packet, walk->offset, 4);
		if (!header)
			return 0;
		walk->type = *(__be16 *)(header + 2);
		walk->offset += 4;
	}
	return 1;
}

/* Hop-by-hop options, routing and destination options. Linux puts the limit of a tunnel's depth into the last kind. */
static __always_inline int tp_walk_extensions(const struct tp_packet *packet, struct tp_walk *walk)
{
	int i;

	for (i = 0; i < 2 && (walk->protocol == 0 || walk->protocol == 43 || walk->protocol == 60); i++) {
		__u8 *header = tp_at(packet, walk->offset, 8);

		if (!header)
			return 0;
		walk->protocol = header[0];
		walk->offset = tp_opaque(packet, walk->offset + (header[1] + 1) * 8);
	}
	return 1;
}

/* MPLS does not name its content. As in parse.h, the first half byte decides. */
static __always_inline int tp_walk_labels(const struct tp_packet *packet, struct tp_walk *walk)
{
	__u8 *header;
	int i;

	for (i = 0; i < 4; i++) {
		header = tp_at(packet, walk->offset, 5);
		if (!header)
			return 0;
		walk->offset += 4;
		if (header[2] & 1) {
			walk->type = header[4] >> 4 == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
			return header[4] >> 4 == 4 || header[4] >> 4 == 6;
		}
	}
	return 0;
}

/*
 * A program may send several datagrams in one buffer, each with a tunnel packet. The length of the first inner packet
 * distinguishes them from one large packet in a tunnel: a large packet ends at the end of the buffer, or is too long
 * for its length field.
 */
static __always_inline int tp_walk_ip(const struct tp_packet *packet, struct tp_walk *walk)
{
	__u32 start, length;

	if ((walk->type == bpf_htons(ETH_P_MPLS_UC) || walk->type == bpf_htons(ETH_P_MPLS_MC)) && !tp_walk_labels(packet, walk))
		return 0;
	start = walk->offset;
	if (walk->type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = tp_at(packet, start, sizeof(*ip));

		if (!ip)
			return 0;
		length = bpf_ntohs(ip->tot_len);
		walk->protocol = ip->protocol;
		walk->offset = tp_opaque(packet, start + ip->ihl * 4);
	} else if (walk->type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = tp_at(packet, start, sizeof(*ip));

		if (!ip)
			return 0;
		length = bpf_ntohs(ip->payload_len);
		if (length)
			length += sizeof(*ip);
		walk->protocol = ip->nexthdr;
		walk->offset = tp_opaque(packet, start + sizeof(*ip));
		if (!tp_walk_extensions(packet, walk))
			return 0;
	} else {
		return 0;
	}
	return !walk->in_udp || !length || start + length == packet->context->len;
}

/*
 * VXLAN, VXLAN-GPE, Geneve, GUE, or IP directly in UDP (FOU, bareudp), on any port: tp_walk_ip checks the content. Sets
 * `protocol` if an IP protocol number names the content, else `type`.
 */
static __always_inline int tp_walk_udp(const struct tp_packet *packet, struct tp_walk *walk)
{
	__u8 *header = tp_at(packet, walk->offset + 8, 8);

	if (!header)
		return 0;
	walk->in_udp = 1;
	walk->offset += 8;
	if (header[0] >> 6 == 1) {
		walk->protocol = header[0] >> 4 == 6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
		return header[0] >> 4 == 4 || header[0] >> 4 == 6;
	}
	if (header[0] < 0x20 && (header[1] == IPPROTO_IPIP || header[1] == IPPROTO_IPV6 || header[1] == IPPROTO_GRE)) {
		walk->protocol = header[1];
		walk->offset += 4 + header[0] * 4;
		return 1;
	}
	walk->offset += 8;
	walk->type = *(__be16 *)(header + 2);
	if (walk->type == TP_A_FRAME || walk->type == bpf_htons(ETH_P_IP) || walk->type == bpf_htons(ETH_P_IPV6)) {
		walk->offset += (header[0] & 0x3f) * 4;
		return !(header[0] >> 6);
	}
	walk->type = TP_A_FRAME;
	if (header[0] & 4 && header[3] == 1)
		walk->type = bpf_htons(ETH_P_IP);
	else if (header[0] & 4 && header[3] == 2)
		walk->type = bpf_htons(ETH_P_IPV6);
	return header[0] & 8;
}

/* Enters the tunnel that begins here, if there is one. */
static __always_inline int tp_walk_inside(const struct tp_packet *packet, struct tp_walk *walk)
{
	__u16 flags;
	__u8 *header;

	walk->depth++;
	walk->in_udp = 0;
	if (walk->protocol == IPPROTO_UDP && !tp_walk_udp(packet, walk))
		return 0;
	switch (walk->protocol) {
	case IPPROTO_UDP:
		return 1;
	case IPPROTO_IPIP:
		walk->type = bpf_htons(ETH_P_IP);
		return 1;
	case IPPROTO_IPV6:
		walk->type = bpf_htons(ETH_P_IPV6);
		return 1;
	case IPPROTO_GRE:
		header = tp_at(packet, walk->offset, 4);
		if (!header)
			return 0;
		flags = bpf_ntohs(*(__be16 *)header);
		walk->type = *(__be16 *)(header + 2);
		walk->offset += 4 + (flags >> 13 & 4) + (flags >> 11 & 4) + (flags >> 10 & 4);
		return !(flags & 0x4007);
	default:
		return 0;
	}
}

#define TP_DEPTH 16

/* Marks a packet with an unknown header, such as ESP. */
#define TP_UNSURE (1U << 31)

/* The number of uncertain packets. With them, the daemon reports a window as approximate. */
__u64 tp_unsure SEC(".data.twinprobe");

/*
 * The size of the headers before the payload, which each frame of this packet repeats, with those inside of up to two
 * tunnels. The upper half is the number of tunnels. The function does not use tp_parse, because not all probes parse,
 * and only packets of several frames need it. The kernel verifies this function once for all its calls.
 */
__noinline __u32 tp_repeated(struct __sk_buff *context)
{
	struct tp_walk walk = { .type = TP_A_FRAME };
	struct tp_packet packet = {};
	__u32 repeated = 0, known = 0;
	__u8 *header;
	int i;

	packet.context = context;
	tp_locate(&packet);
#pragma clang loop unroll(disable)
	for (i = 0; i < 3; i++) {
		/* The content of UDP need not be a tunnel. At egress, the kernel knows the headers of packets other than IP. */
		known = walk.in_udp || (!i && !TP_IS_INGRESS);
		if (walk.type == TP_A_FRAME && !tp_walk_ethernet(&packet, &walk))
			break;
		if (!i)
			repeated = walk.offset;
		if (!tp_walk_ip(&packet, &walk))
			break;
		repeated = walk.offset | walk.depth << TP_DEPTH;
		known = walk.protocol == IPPROTO_TCP || walk.protocol == IPPROTO_UDP;
		if (walk.protocol == IPPROTO_TCP) {
			header = tp_at(&packet, walk.offset, 20);
			if (header)
				repeated += (header[12] >> 4) * 4;
			break;
		}
		if (walk.protocol == IPPROTO_UDP)
			repeated += 8;
		if (!tp_walk_inside(&packet, &walk))
			break;
		walk.offset = tp_opaque(&packet, walk.offset);
	}
	return known ? repeated : repeated | TP_UNSURE;
}

/* The number of frames. The kernel does not set gso_segs for packets of virtual machines before it cuts them. */
static __always_inline __u32 tp_frames(const struct tp_packet *packet)
{
	__u32 size = packet->context->gso_size, frames = packet->context->gso_segs;

	if (!size)
		return 1;
	if (!frames)
		frames = (packet->context->len - (tp_repeated(packet->context) & 0xffff) + size - 1) / size;
	return frames ? frames : 1;
}
#endif

static __always_inline __u32 tp_segments(const struct tp_packet *packet)
{
	TP_SEES(frames);
#ifdef TWINPROBE_TC
	return tp_opaque(packet, tp_frames(packet));
#else
	return 1;
#endif
}

#ifdef TWINPROBE_TC
/* Tells whether these headers fit the kernel's number of frames. Those of unknown tunnels do not. */
static __always_inline int tp_fits(const struct tp_packet *packet, __u32 headers)
{
	__u32 size = packet->context->gso_size, frames = packet->context->gso_segs;

	return !frames || !size || (packet->context->len - headers + size - 1) / size == frames;
}
#endif

static __always_inline __u32 tp_length(const struct tp_packet *packet)
{
	TP_SEES(lengths);
#ifdef TWINPROBE_TC
	__u32 tag = packet->context->vlan_present ? 4 : 0, length = packet->context->len + tag;

	if (packet->context->gso_size) {
		__u32 repeated = tp_repeated(packet->context), further = tp_frames(packet) - 1;
		__u32 each = repeated & 0xffff, headers = further * each;

#ifdef TWINPROBE_EGRESS
		/* wire_len has the repeated headers, even without Ethernet. For tunnels, older kernels count only the outer ones. */
		if (!(repeated >> TP_DEPTH & 0xff)) {
			headers = packet->context->wire_len > packet->context->len ? packet->context->wire_len - packet->context->len : 0;
			each = further ? headers / further : each;
		}
#endif
		if (repeated & TP_UNSURE || !tp_fits(packet, each))
			__sync_fetch_and_add(&tp_unsure, 1);
		length += headers + further * tag;
	}
	return tp_opaque(packet, length);
#else
	return tp_buffer_length(packet);
#endif
}

/* The length of each frame but the last. */
static __always_inline __u32 tp_frame_length(const struct tp_packet *packet)
{
	__u32 length = tp_length(packet);
#ifdef TWINPROBE_TC
	__u32 frames = tp_frames(packet), own = packet->context->len + (packet->context->vlan_present ? 4 : 0);

	if (frames > 1)
		length = packet->context->gso_size + (length - own) / (frames - 1);
#endif
	return length;
}

#endif
