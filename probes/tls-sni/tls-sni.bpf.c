// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tls-sni: counts packets and bytes by the server name that a TLS client asks for (SNI, RFC 6066), and the versions of
 * TLS that clients offer.
 *
 *	PORT=n		only this TCP port; 0 for all ports (default 0)
 *	NAMES=n		entries of the LRU map of names (default 1024)
 *	CONNECTIONS=n	size of the table of connections, a power of two (default 4096)
 */
#define TP_LABELS 0
#include <twinprobe.h>

#ifndef PORT
#define PORT 0
#endif
#ifndef NAMES
#define NAMES 1024
#endif
#ifndef CONNECTIONS
#define CONNECTIONS 4096
#endif

#define FLAG_SYN 0x02

#define RECORD_HANDSHAKE 22
#define CLIENT_HELLO 1
#define EXTENSION_SERVER_NAME 0
#define EXTENSION_SUPPORTED_VERSIONS 43
#define HOST_NAME 0
#define MAX_EXTENSIONS 24
#define MAX_VERSIONS 6
#define WORDS 8
/* Offsets in a ClientHello: headers of record and handshake, version, random. */
#define TO_VERSION 9
#define TO_SESSION 43

enum hello {
	NAMED,
	NO_NAME,
	SPLIT,		/* continues in another packet; this one has no name */
	MALFORMED,
};

enum version {
	OTHER,
	SSL_3_0 = 0x0300,
	TLS_1_0,
	TLS_1_1,
	TLS_1_2,
	TLS_1_3,
};

/* Longer names are cut off. */
struct name {
	char name[8 * WORDS];
};

union text {
	struct name name;
	__u64 words[WORDS];
};

struct traffic {
	__u64 packets_total;
	__u64 bytes_total;
	__u64 handshakes_total;
};

/* Parts of a ClientHello, as offsets from the start of the frame. */
struct found {
	__u32 end;		/* end of the packet's payload */
	__u32 name, name_length;
	__u32 versions, versions_length;
};

TP_LRU_HASH(names, struct name, struct traffic, NAMES);
TP_PERCPU_HASH(hellos, enum hello, __u64, 8);
TP_PERCPU_HASH(versions, enum version, __u64, 16);
/*
 * Hashes and names of connections. The hash is also the index. Both twins share these maps, because no metric reads
 * them. Both directions also share them.
 */
TP_ARRAY(connections, __u32, CONNECTIONS);
TP_ARRAY(connection_names, struct name, CONNECTIONS);

#define COUNT(MAP, KEY)					\
	({						\
		__u64 *count_ = tp_get(MAP, KEY);	\
							\
		if (count_)				\
			(*count_)++;			\
	})

/* Converts bytes to lower case, because host names ignore case. */
static __always_inline __u64 lower(__u64 bytes)
{
	__u64 low = bytes & 0x7f7f7f7f7f7f7f7f;
	/* The highest bit of each byte tells whether it is at least 'A', or above 'Z'. */
	__u64 from_a = low + 0x3f3f3f3f3f3f3f3f, after_z = low + 0x2525252525252525;

	return bytes | (from_a & ~after_z & ~bytes & 0x8080808080808080) >> 2;
}

static __always_inline __u16 number(const __u8 *bytes)
{
	return bytes[0] << 8 | bytes[1];
}

/* Reads `size` bytes at `offset`. Returns 0 if they end after `end`. */
static __always_inline int load(const struct tp_packet *packet, __u32 offset, __u32 end, __u8 *bytes, __u32 size)
{
	return offset + size <= end && tp_load_bytes(packet, offset, bytes, size);
}

/* Finds the name and the versions in the extensions. */
static __always_inline enum hello find(const struct tp_packet *packet, struct found *found)
{
	__u8 head[11];
	__u32 at = packet->payload, hello_end, extensions_end, length, type, word, *linear;
	int i;

	/* Skips all fields before the extensions: session ID, ciphers, compression methods. */
	if (!load(packet, at + 5, found->end, head, 4))
		return SPLIT;
	hello_end = at + TO_VERSION + (head[1] << 16 | number(head + 2));
	at += TO_SESSION;
	if (!load(packet, at, found->end, head, 1))
		return SPLIT;
	at = tp_opaque(packet, at + 1 + head[0]);
	if (!load(packet, at, found->end, head, 2))
		return SPLIT;
	at = tp_opaque(packet, at + 2 + number(head));
	if (!load(packet, at, found->end, head, 1))
		return SPLIT;
	at = tp_opaque(packet, at + 1 + head[0]);
	if (at >= hello_end)
		return at == hello_end ? NO_NAME : MALFORMED;
	if (!load(packet, at, found->end, head, 2))
		return SPLIT;
	at = tp_opaque(packet, at + 2);
	extensions_end = tp_opaque(packet, at + number(head));
	if (extensions_end > hello_end)
		return MALFORMED;
#pragma unroll
	for (i = 0; i < MAX_EXTENSIONS; i++) {
		/* Hides the values from the verifier, which then checks each round once, not once for each path. */
		at = tp_opaque(packet, at);
		found->name = tp_opaque(packet, found->name);
		found->name_length = tp_opaque(packet, found->name_length);
		found->versions = tp_opaque(packet, found->versions);
		found->versions_length = tp_opaque(packet, found->versions_length);
		extensions_end = tp_opaque(packet, extensions_end);
		if (at + 4 > extensions_end)
			return at == extensions_end ? NO_NAME : MALFORMED;
		if (at + 4 > found->end)
			return SPLIT;
		/* Most are in the linear part of the packet. A helper function is slower. */
		linear = tp_at(packet, at, 4);
		if (linear)
			word = *linear;
		else if (!tp_load(packet, at, &word))
			return SPLIT;
		type = tp_opaque(packet, bpf_ntohl(word) >> 16);
		length = tp_opaque(packet, bpf_ntohl(word) & 0xffff);
		at += 4;
		if (at + length > extensions_end)
			return MALFORMED;
		if (type == EXTENSION_SUPPORTED_VERSIONS && length) {
			found->versions = tp_opaque(packet, at + 1);
			found->versions_length = tp_opaque(packet, length - 1);
		} else if (type == EXTENSION_SERVER_NAME && length) {
			/* The list has at most one name, because host names are the only type. */
			if (!load(packet, at, found->end, head, 5))
				return SPLIT;
			if (!number(head + 3) || number(head + 3) + 5 > length)
				return MALFORMED;
			if (head[2] == HOST_NAME) {
				found->name = tp_opaque(packet, at + 5);
				found->name_length = tp_opaque(packet, number(head + 3));
			}
		}
		at += length;
	}
	return NO_NAME;
}

static __always_inline void count_version(__u16 version)
{
	enum version known = version >= SSL_3_0 && version <= TLS_1_3 ? version : OTHER;

	COUNT(versions, &known);
}

static __always_inline void count_versions(const struct tp_packet *packet, const struct found *found)
{
	__u8 bytes[2];
	__u32 i;

	if (!found->versions_length) {
		/* Before TLS 1.3 a client sends only its highest version. */
		if (load(packet, packet->payload + TO_VERSION, found->end, bytes, 2))
			count_version(number(bytes));
		return;
	}
#pragma unroll
	for (i = 0; i < 2 * MAX_VERSIONS; i += 2) {
		if (i + 2 > found->versions_length || !load(packet, found->versions + i, found->end, bytes, 2))
			return;
		/* Clients add invalid versions to keep servers tolerant (GREASE, RFC 8701). */
		if (bytes[0] != bytes[1] || (bytes[0] & 0xf) != 0xa)
			count_version(number(bytes));
	}
}

/* Copies the name in lower case. Returns 0 if the packet contains only a part of it. */
static __always_inline int copy_name(const struct tp_packet *packet, const struct found *found, union text *name)
{
	__u32 i, left = found->name_length;

	if (found->name + found->name_length > found->end)
		return 0;
	tp_copy(packet, found->name, name->words, sizeof(name->words));
#pragma unroll
	for (i = 0; i < WORDS; i++) {
		__u64 kept = left >= 8 * (i + 1) ? ~0ULL : left > 8 * i ? (1ULL << (8 * (left - 8 * i))) - 1 : 0;

		/* The mask keeps the first bytes, which depend on the byte order. */
		name->words[i] = lower(name->words[i]) & (bpf_htons(1) == 1 ? __builtin_bswap64(kept) : kept);
	}
	return 1;
}

static __always_inline int is_client_hello(const struct tp_packet *packet)
{
	__u8 head[6];

	/* The third byte is the minor version of the record, not the version of TLS. */
	return packet->payload_length >= sizeof(head) && tp_load_bytes(packet, packet->payload, head, sizeof(head)) &&
	       head[0] == RECORD_HANDSHAKE && head[1] == 3 && head[2] <= 4 && head[5] == CLIENT_HELLO;
}

TP_PROBE(count_names, packet)
{
	__u32 connection, place, length = tp_length(packet), *present;
	struct found found = {};
	struct traffic *traffic;
	struct tp_flow flow;
	struct name *known;
	enum hello hello;
	union text text = {};

	tp_parse(packet);
	if (packet->protocol != IPPROTO_TCP || !packet->l4 ||
	    (PORT && packet->source_port != PORT && packet->destination_port != PORT) || !tp_biflow(packet, &flow))
		return TP_PASS;
	/* Hides the parsed headers from the verifier. It then checks the rest once, not once for each path. */
	tp_locate(packet);
	packet->payload = tp_opaque(packet, packet->payload);
	packet->payload_length = tp_opaque(packet, packet->payload_length);
	packet->tcp_flags = tp_opaque(packet, packet->tcp_flags);
	connection = tp_hash(&flow, sizeof(flow), 0);
	place = connection & (CONNECTIONS - 1);
	present = tp_at_index(connections, place);
	if (!present)
		return TP_PASS;

	if (is_client_hello(packet)) {
		found.end = tp_opaque(packet, packet->payload + packet->payload_length);
		found.name = found.name_length = found.versions = found.versions_length = tp_opaque(packet, 0);
		hello = find(packet, &found);
		if (found.name_length && hello != MALFORMED)
			hello = copy_name(packet, &found, &text) ? NAMED : SPLIT;
		hello = tp_opaque(packet, hello);
		COUNT(hellos, &hello);
		if (hello != MALFORMED)
			count_versions(packet, &found);
		known = tp_at_index(connection_names, place);
		if (hello != NAMED || !known)
			return TP_PASS;
		*known = text.name;
		*present = connection;
		traffic = tp_count_frames(names, known, tp_segments(packet), length);
		if (traffic)
			tp_add(&traffic->handshakes_total, 1);
		return TP_PASS;
	}
	if (*present != connection)
		return TP_PASS;
	if (packet->tcp_flags & FLAG_SYN) {
		/* A new connection has the same addresses and ports. */
		*present = 0;
		return TP_PASS;
	}
	known = tp_at_index(connection_names, place);
	if (known)
		tp_count_frames(names, known, tp_segments(packet), length);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
