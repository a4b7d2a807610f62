// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tcp-flags: counts packets per combination of TCP flags, and begun and completed handshakes per server.
 *
 *	SERVERS=n	entries of the LRU map of servers, by address and port (default 4096)
 *	PENDING=n	size of the table of open handshakes, a power of two (default 16384)
 */
#include <twinprobe.h>

#ifndef SERVERS
#define SERVERS 4096
#endif
#ifndef PENDING
#define PENDING 16384
#endif

#define FLAG_FIN 0x01
#define FLAG_SYN 0x02
#define FLAG_RST 0x04
#define FLAG_PSH 0x08
#define FLAG_ACK 0x10
#define FLAG_URG 0x20
#define ALL_FLAGS 0x3f

/* Usual combinations and well-known invalid ones, without ECE and CWR. Metrics show others as numbers. */
enum flags {
	NONE = 0,
	FIN = FLAG_FIN,
	SYN = FLAG_SYN,
	SYN_FIN = FLAG_SYN | FLAG_FIN,
	RST = FLAG_RST,
	SYN_RST = FLAG_SYN | FLAG_RST,
	ACK = FLAG_ACK,
	FIN_ACK = FLAG_FIN | FLAG_ACK,
	SYN_ACK = FLAG_SYN | FLAG_ACK,
	RST_ACK = FLAG_RST | FLAG_ACK,
	PSH_ACK = FLAG_PSH | FLAG_ACK,
	FIN_PSH_ACK = FLAG_FIN | FLAG_PSH | FLAG_ACK,
	RST_PSH_ACK = FLAG_RST | FLAG_PSH | FLAG_ACK,
	XMAS = FLAG_FIN | FLAG_PSH | FLAG_URG,
	URG_ACK = FLAG_URG | FLAG_ACK,
	URG_PSH_ACK = FLAG_URG | FLAG_PSH | FLAG_ACK,
	ALL = ALL_FLAGS,
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

struct server {
	tp_ip address;
	__u32 port;
};

struct handshakes {
	__u64 begun_total;		/* first SYNs */
	__u64 repeated_total;		/* repeated SYNs */
	__u64 completed_total;		/* the client sent ACK */
	__u64 aborted_total;		/* the client sent RST instead */
};

TP_PERCPU_HASH(combinations, enum flags, struct counters, 64);
TP_LRU_HASH(servers, struct server, struct handshakes, SERVERS);
/*
 * Hashes of connections with nothing but SYNs so far. The hash is also the index, because a hash map of the kernel
 * would cost more than the rest of the program. Both twins share the map, because no metric reads it.
 */
TP_ARRAY(pending, __u32, PENDING);

static __always_inline struct handshakes *handshakes_with(const struct tp_flow *flow)
{
	struct server server = { .address = flow->destination, .port = flow->destination_port };

	return tp_get(servers, &server);
}

static __always_inline void begin(const struct tp_flow *flow, __u32 connection, __u32 *place)
{
	struct handshakes *handshakes = handshakes_with(flow);

	if (handshakes)
		tp_add(*place == connection ? &handshakes->repeated_total : &handshakes->begun_total, 1);
	*place = connection;
}

static __always_inline void end(const struct tp_flow *flow, __u8 flags, __u32 *place)
{
	struct handshakes *handshakes = handshakes_with(flow);

	*place = 0;
	if (handshakes)
		tp_add(flags & FLAG_RST ? &handshakes->aborted_total : &handshakes->completed_total, 1);
}

TP_PROBE(count_flags, packet)
{
	struct tp_flow flow;
	enum flags flags;
	__u32 connection, *place, frames, length;

	tp_parse(packet);
	if (packet->protocol != IPPROTO_TCP || !packet->l4)
		return TP_PASS;
	flags = packet->tcp_flags & ALL_FLAGS;
	frames = tp_segments(packet);
	length = tp_length(packet);
	/* A packet may stand for several frames. Only the last one has FIN and PSH. */
	if (frames > 1) {
		enum flags before = flags & ~(FLAG_FIN | FLAG_PSH);
		__u32 bytes = tp_frame_length(packet) * --frames;

		tp_count_frames(combinations, &before, frames, bytes);
		length -= bytes;
	}
	tp_count_frames(combinations, &flags, 1, length);
	/* A SYN-ACK comes from the server, not the client. */
	if ((flags & (FLAG_SYN | FLAG_ACK)) == (FLAG_SYN | FLAG_ACK) || !tp_flow(packet, &flow))
		return TP_PASS;
	connection = tp_hash(&flow, sizeof(flow), 0);
	place = tp_at_index(pending, connection & (PENDING - 1));
	if (!place)
		return TP_PASS;
	if (flags == SYN)
		begin(&flow, connection, place);
	else if (flags & (FLAG_ACK | FLAG_RST) && *place == connection)
		end(&flow, flags, place);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
