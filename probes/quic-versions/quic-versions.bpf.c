// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * quic-versions: counts QUIC packets per version and type, versions that servers offer, and lengths of connection IDs.
 * Uses the fields that all versions share (RFC 8999).
 *
 *	PORT=n		only this UDP port; 0 for all ports (default 443)
 */
#define TP_LABELS 0
#include <twinprobe.h>

#ifndef PORT
#define PORT 443
#endif

#define LONG 0x80
#define FIXED 0x40
/* Least size of a client's first datagram, which limits amplification (RFC 9000, 14.1). */
#define LEAST_INITIAL 1200
#define LONGEST_ID 20
#define MAX_OFFERED 16

/* Metrics show others as numbers. */
enum version {
	NONE,			/* version negotiation and short headers have none */
	V1 = 0x00000001,
	V2 = 0x6b3343cf,
	GREASE = 0x0a0a0a0a,	/* any 0x?a?a?a?a: invented versions that test peers */
	DRAFT_27 = 0xff00001b,
	DRAFT_28,
	DRAFT_29,
	DRAFT_30,
	DRAFT_31,
	DRAFT_32,
	DRAFT_33,
	DRAFT_34,
	Q043 = 0x51303433,
	Q046 = 0x51303436,
	Q050 = 0x51303530,
};

enum type {
	SHORT_HEADER,
	INITIAL,
	INITIAL_SMALL,		/* in a datagram of less than 1200 bytes */
	ZERO_RTT,
	HANDSHAKE,
	RETRY,
	VERSION_NEGOTIATION,
	UNKNOWN_TYPE,		/* of a version with unknown types */
	MALFORMED,		/* a connection ID longer than the version or packet allows */
	NOT_QUIC,
};

struct kind {
	enum version version;
	enum type type;
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

enum side {
	DESTINATION,
	SOURCE,
};

struct id {
	enum side side;
	__u32 length;
};

TP_PERCPU_HASH(kinds, struct kind, struct counters, 256);
TP_PERCPU_HASH(ids, struct id, __u64, 512);
TP_PERCPU_HASH(offered, enum version, __u64, 256);

#define COUNT(MAP, KEY)					\
	({						\
		__u64 *count_ = tp_get(MAP, KEY);	\
							\
		if (count_)				\
			(*count_)++;			\
	})

/* The start of a long header, up to the length of the first connection ID. */
struct head {
	__u8 first;
	__u8 version[4];
	__u8 length;
};

static __always_inline enum version version_of(const __u8 *bytes)
{
	__u32 version = (__u32)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];

	return (version & 0x0f0f0f0f) == GREASE ? GREASE : version;
}

static __always_inline int has_types(__u32 version)
{
	return version == V1 || version == V2 || (version >= DRAFT_27 && version <= DRAFT_34);
}

static __always_inline enum type type_of(__u8 first, __u32 version, __u32 length)
{
	/* Version 2 numbers types differently, to keep middleboxes from relying on them (RFC 9369). */
	__u8 type = (first >> 4) - (version == V2);

	if (!(first & FIXED))
		return NOT_QUIC;
	if (!has_types(version))
		return UNKNOWN_TYPE;
	switch (type & 3) {
	case 0:
		return length < LEAST_INITIAL ? INITIAL_SMALL : INITIAL;
	case 1:
		return ZERO_RTT;
	case 2:
		return HANDSHAKE;
	}
	return RETRY;
}

static __always_inline int load(const struct tp_packet *packet, __u32 offset, __u32 end, void *bytes, __u32 size)
{
	return offset + size <= end && tp_load_bytes(packet, offset, bytes, size);
}

/* Counts the versions after the connection IDs, which a server offers. */
static __always_inline void count_offered(const struct tp_packet *packet, __u32 at, __u32 end)
{
	enum version version;
	__u8 bytes[4];
	int i;

#pragma clang loop unroll(disable)
	for (i = 0; i < MAX_OFFERED; i++) {
		at = tp_opaque(packet, at);
		if (!load(packet, at, end, bytes, 4))
			return;
		version = version_of(bytes);
		COUNT(offered, &version);
		at += 4;
	}
}

/* Returns the end of the connection IDs of a long header, or 0 if they don't fit. */
static __always_inline __u32 ids_of(const struct tp_packet *packet, const struct head *head, __u32 end, __u8 *source)
{
	__u32 at = tp_opaque(packet, packet->payload + sizeof(*head) + head->length);

	if (!load(packet, at, end, source, 1))
		return 0;
	at = tp_opaque(packet, at + 1 + *source);
	return at <= end ? at : 0;
}

TP_PROBE(count_versions, packet)
{
	__u32 length = tp_length(packet), end, ids_end;
	struct id destination = { .side = DESTINATION }, source = { .side = SOURCE };
	struct kind kind = {};
	struct head head = {};
	__u8 source_length = 0;

	tp_parse(packet);
	if (packet->protocol != IPPROTO_UDP || !packet->l4 ||
	    (PORT && packet->source_port != PORT && packet->destination_port != PORT))
		return TP_PASS;
	/* Hides the parsed headers from the verifier. It then checks the rest once, not once for each path. */
	tp_locate(packet);
	packet->payload = tp_opaque(packet, packet->payload);
	packet->payload_length = tp_opaque(packet, packet->payload_length);
	end = packet->payload + packet->payload_length;

	kind.type = NOT_QUIC;
	if (!load(packet, packet->payload, end, &head.first, 1))
		goto count;
	if (!(head.first & LONG)) {
		kind.type = head.first & FIXED ? SHORT_HEADER : NOT_QUIC;
		goto count;
	}
	if (!load(packet, packet->payload, end, &head, sizeof(head))) {
		kind.type = MALFORMED;
		goto count;
	}
	kind.version = version_of(head.version);
	kind.type = kind.version ? type_of(head.first, kind.version, packet->payload_length) : VERSION_NEGOTIATION;
	kind.type = tp_opaque(packet, kind.type);
	if (kind.type == NOT_QUIC) {
		kind.version = NONE;
		goto count;
	}
	ids_end = ids_of(packet, &head, end, &source_length);
	if (!ids_end || (has_types(kind.version) && (head.length > LONGEST_ID || source_length > LONGEST_ID))) {
		kind.type = MALFORMED;
		goto count;
	}
	destination.length = head.length;
	COUNT(ids, &destination);
	source.length = source_length;
	COUNT(ids, &source);
	if (kind.type == VERSION_NEGOTIATION)
		count_offered(packet, ids_end, end);
count:
	tp_count_frames(kinds, &kind, tp_segments(packet), length);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
