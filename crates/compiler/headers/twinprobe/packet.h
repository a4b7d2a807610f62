/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The entry point of a probe, and the bytes of its packet. twinprobe.h has the overview. */
#ifndef TWINPROBE_PACKET_H
#define TWINPROBE_PACKET_H

#if !defined(TWINPROBE_XDP) && !defined(TWINPROBE_TC)
#define TWINPROBE_XDP 1
#endif
#ifdef TWINPROBE_TC
#define TP_IS_XDP 0
#define TP_SECTION "tc"
#define TP_PASS TC_ACT_UNSPEC
#define TP_DROP TC_ACT_SHOT
#define TP_CONTEXT struct __sk_buff
#else
#define TP_IS_XDP 1
#ifdef TWINPROBE_SINGLE_BUFFER
#define TP_SECTION "xdp"
#else
#define TP_SECTION "xdp.frags"
#endif
#define TP_PASS XDP_PASS
#define TP_DROP XDP_DROP
#define TP_CONTEXT struct xdp_md
#endif
#ifdef TWINPROBE_EGRESS
#define TP_IS_INGRESS 0
#else
#define TP_IS_INGRESS 1
#endif

#ifndef TP_HEADERS
#define TP_HEADERS 256
#endif

#define TP_AS(rendering) __attribute__((btf_decl_tag(#rendering)))

/*
 * Notes in the object which facts the numbers depend on: `ethernet`, `tags`, `lengths`, `frames` or `packets`. So the
 * daemon knows which offloads make the numbers approximate. Code that clang removes leaves no note. The instruction is
 * needed: clang adds a line entry for the assembly, and the kernel refuses two entries for one instruction.
 */
#define TP_SEES(WHAT)									\
	({										\
		__u64 tp_line_;								\
		asm volatile("%0 = 0\n\t.pushsection .twinprobe.sees,\"\",@progbits\n\t"	\
			     ".asciz \"" #WHAT "\"\n\t.popsection" : "=r"(tp_line_));	\
	})

/* The reason why a packet was not parsed further. */
enum tp_error {
	TP_WHOLE,	/* none */
	TP_CUT_OFF,	/* the packet ends within a header */
	TP_BAD_HEADER,	/* a header contradicts itself */
	TP_TOO_DEEP,	/* more tags, labels or extension headers than are parsed */
};

enum tp_tunnel {
	TP_NO_TUNNEL,
	TP_IPIP,	/* IPv4 or IPv6 directly in IP */
	TP_GRE,
	TP_VXLAN,
	TP_GENEVE,
};

enum tp_fragment {
	TP_NO_FRAGMENT,
	TP_FIRST_FRAGMENT,	/* it has the transport header */
	TP_LATER_FRAGMENT,	/* it lacks the transport header */
};

/* The packet. Numbers are in the byte order of the host; tp_parse fills in all but the first three fields. */
struct tp_packet {
	TP_CONTEXT *context;
	/* The first part of the packet, which can be read directly. */
	void *data, *end;

	enum tp_error error;

	/* Ethernet, VLAN tags (the outermost first) and MPLS. */
	__u16 ether_type;	/* the one after tags and labels: 0x0800, 0x86dd, 0x0806, ...; below 0x600 a length (802.3) */
	__u8 tags;		/* the number of VLAN tags */
	__u16 vlan[2];		/* tag control information: priority in the upper 3 bits, VLAN in the lower 12 */
	__u8 labels;		/* the number of MPLS labels */
	__u32 label;		/* the outermost entry: label in the upper 20 bits, then class (3), bottom (1), TTL (8) */

	/* IP. */
	__u8 version;		/* 4, 6, or 0 if it is not an IP packet */
	__u8 protocol;		/* of the transport header, behind IPv6 extension headers */
	__u8 tos;		/* DSCP in the upper 6 bits, ECN in the lower 2 */
	__u8 ttl;		/* or hop limit */
	__u8 fragment;		/* an enum tp_fragment */
	__u8 extensions;	/* the number of IPv6 extension headers */
	__u32 ip_length;	/* bytes of the IP packet with its header, without padding of the frame */

	/* TCP, UDP, UDP-Lite, DCCP, SCTP, ICMP. */
	__u16 source_port, destination_port;
	__u8 tcp_flags;		/* FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128 */
	__u8 icmp_type, icmp_code;	/* of ICMP and ICMPv6 */
	__u32 payload_length;	/* bytes behind the transport header */

	/* The tunnel that was entered last. */
	__u32 tunnel_id;	/* VNI of VXLAN and Geneve, key of GRE */
	__u8 depth;		/* the number of entered tunnels */

	/* Offsets from the start of the frame; 0 if there is no such header (but l2 may be 0). */
	__u32 l2;		/* the Ethernet header; equal to l3 if the inside of a tunnel has none */
	__u32 l3;		/* the header after Ethernet, tags and labels */
	__u32 srh;		/* the last IPv6 routing header */
	__u32 l4;		/* the transport header, complete */
	__u32 payload;		/* the data after the transport header */
};

struct tp_icmp_header {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 rest;
};

struct tp_arp_header {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_length;
	__u8 protocol_length;
	__be16 operation;	/* 1 request, 2 reply */
	__u8 sender_mac[6];
	__u8 sender_ip[4];
	__u8 target_mac[6];
	__u8 target_ip[4];
};

#define TP_PROBE(NAME, PACKET)							\
	static __always_inline int NAME##_body(struct tp_packet *PACKET);	\
	SEC(TP_SECTION) int NAME(TP_CONTEXT *context)				\
	{									\
		struct tp_packet packet = {};					\
										\
		packet.context = context;					\
		tp_locate(&packet);						\
		return NAME##_body(&packet);					\
	}									\
	static __always_inline int NAME##_body(struct tp_packet *PACKET)

/* Assembly, because clang would spill the fields as 32-bit numbers, and the verifier would refuse them as pointers. */
static __always_inline void tp_locate(struct tp_packet *packet)
{
	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(packet->data)
		     : "r"(packet->context), "i"(__builtin_offsetof(TP_CONTEXT, data)));
	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(packet->end)
		     : "r"(packet->context), "i"(__builtin_offsetof(TP_CONTEXT, data_end)));
}

static __always_inline TP_CONTEXT *tp_context(const struct tp_packet *packet)
{
	return packet->context;
}

static __always_inline __u64 tp_now(void)
{
	return bpf_ktime_get_ns();
}

/* The bytes that helpers can read, without a VLAN tag that the kernel keeps aside. Each header counts once. */
static __always_inline __u32 tp_buffer_length(const struct tp_packet *packet)
{
#ifdef TWINPROBE_TC
	return packet->context->len;
#elif defined(TWINPROBE_SINGLE_BUFFER)
	return packet->end - packet->data;
#else
	return bpf_xdp_get_buff_len(packet->context);
#endif
}

static __always_inline __u32 tp_ifindex(const struct tp_packet *packet)
{
#ifdef TWINPROBE_TC
	return packet->context->ifindex;
#else
	return packet->context->ingress_ifindex;
#endif
}

static __always_inline __u32 tp_mark(const struct tp_packet *packet)
{
#ifdef TWINPROBE_TC
	return packet->context->mark;
#else
	return 0;
#endif
}

/*
 * The mask bounds the offset for the verifier. It is in assembly, because clang would omit it where clang knows a bound
 * that the verifier has lost.
 */
static __always_inline void *tp_at(const struct tp_packet *packet, __u64 offset, __u32 size)
{
	void *header;

	if (offset > 0x7fff)
		return 0;
	asm volatile("%0 &= 0x7fff" : "+r"(offset));
	header = packet->data + offset;
	return header + size > packet->end ? 0 : header;
}

/*
 * Returns the same offset, as a difference of pointers, whose value the verifier does not know. So the verifier follows the code after it once, not again for each number of tags, labels and extension headers. Without the mask it would
 * refuse the sum. No offset exceeds the mask.
 */
static __always_inline __u32 tp_opaque(const struct tp_packet *packet, __u64 offset)
{
	asm volatile("%0 &= 0xffffff\n%0 += %1\n%0 -= %1" : "+&r"(offset) : "r"(packet->data));
	return offset;
}

static __always_inline __u32 tp_offset(const struct tp_packet *packet, const void *pointer)
{
	__u64 offset = (__u64)pointer;

	asm volatile("%0 -= %1" : "+r"(offset) : "r"(packet->data));
	return offset;
}

static __always_inline __u32 tp_copy_bytes(const struct tp_packet *packet, __u32 offset, void *buffer, __u32 size)
{
#if defined(TWINPROBE_XDP) && defined(TWINPROBE_SINGLE_BUFFER)
	__u8 *bytes = tp_at(packet, offset, 0);
	__u32 copied = 0;

	if (!bytes)
		return 0;
	for (; copied < size && (void *)(bytes + copied + 1) <= packet->end; copied++)
		((__u8 *)buffer)[copied] = bytes[copied];
	return copied;
#else
	__u64 length = tp_buffer_length(packet);

	if (offset >= length)
		return 0;
	length -= offset;
	if (length > size)
		length = size;
	/* Only in this way the verifier of 5.10 knows that the length is not 0. */
	length--;
	asm volatile("" : "+r"(length));
	if (length >= size)
		return 0;
	length++;
#ifdef TWINPROBE_TC
	return bpf_skb_load_bytes(packet->context, offset, buffer, length) ? 0 : length;
#else
	return bpf_xdp_load_bytes(packet->context, offset, buffer, length) ? 0 : length;
#endif
#endif
}

static __always_inline int tp_load_bytes(const struct tp_packet *packet, __u32 offset, void *buffer, __u32 size)
{
#ifdef TWINPROBE_TC
	return !bpf_skb_load_bytes(packet->context, offset, buffer, size);
#elif defined(TWINPROBE_SINGLE_BUFFER)
	void *bytes = tp_at(packet, offset, size);

	if (!bytes)
		return 0;
	__builtin_memcpy(buffer, bytes, size);
	return 1;
#else
	return !bpf_xdp_load_bytes(packet->context, offset, buffer, size);
#endif
}

#define tp_load(packet, offset, pointer) tp_load_bytes(packet, offset, pointer, sizeof(*(pointer)))

/* The buffer is zeroed here, where clang knows how it is aligned. */
#define tp_copy(packet, offset, buffer, size)				\
	({								\
		__builtin_memset((buffer), 0, (size));			\
		tp_copy_bytes((packet), (offset), (buffer), (size));	\
	})

#endif
