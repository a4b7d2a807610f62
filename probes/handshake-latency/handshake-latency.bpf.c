// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * handshake-latency: measures TCP handshakes from SYN to SYN-ACK, and from SYN-ACK to the client's ACK. Both directions
 * share the table of handshakes, so the server may be on either side.
 *
 *	HANDSHAKES=n	size of the table of open handshakes, a power of two (default 4096)
 *	SERVERS=n	entries of the LRU map of servers, by address and port (default 4096)
 */
#include <twinprobe.h>

#ifndef HANDSHAKES
#define HANDSHAKES 4096
#endif
#ifndef SERVERS
#define SERVERS 4096
#endif

#define FLAG_FIN 0x01
#define FLAG_SYN 0x02
#define FLAG_RST 0x04
#define FLAG_ACK 0x10

struct server {
	tp_ip address;
	__u32 port;
};

struct latency {
	__u64 begun_total;
	__u64 repeated_total;		/* repeated SYNs */
	__u64 answered_total;		/* the server has sent a SYN-ACK */
	__u64 completed_total;		/* the client has acknowledged */
	__u64 refused_total;		/* the server sent RST instead */
	__u64 aborted_total;		/* the client sent RST instead */
	__u64 server_side_nanoseconds_total;	/* sum of times from SYN to SYN-ACK */
	__u64 client_side_nanoseconds_total;	/* sum of times from SYN-ACK to ACK */
	__u64 server_side_nanoseconds_max;
	__u64 client_side_nanoseconds_max;
};

/* A handshake that is not complete. */
struct handshake {
	__u32 hash;		/* of the interface and the flow from client to server */
	__u32 sequence;		/* sequence number of the SYN */
	__u32 length;		/* bytes of data in the SYN (TCP Fast Open) */
	__u32 server_sequence;	/* sequence number of the SYN-ACK */
	__u64 begun;		/* time of the first SYN; 0 if the entry is free */
	__u64 answered;		/* time of the first SYN-ACK; 0 before */
};

/* A bucket fits one cache line of 64 bytes, because cache misses cost the most. */
struct bucket {
	struct handshake handshakes[2];
};

TP_HISTOGRAM_SUM(server_side);
TP_HISTOGRAM_SUM(client_side);
TP_LRU_HASH(servers, struct server, struct latency, SERVERS);
/*
 * A hash table of open handshakes. A hash map of the kernel would cost more than the rest of the program. Both twins
 * share the table, because no metric reads it.
 */
TP_ARRAY(handshakes, struct bucket, HANDSHAKES / 2);

static __always_inline struct latency *latency_of(const struct tp_flow *flow)
{
	struct server server = { .address = flow->destination, .port = flow->destination_port };

	return tp_get(servers, &server);
}

/* The difference is negative if another CPU read its clock later. */
static __always_inline __u64 since(__u64 before, __u64 now)
{
	return now > before ? now - before : 0;
}

static __always_inline void turn(struct tp_flow *flow)
{
	tp_ip address = flow->source;
	__u16 port = flow->source_port;

	flow->source = flow->destination;
	flow->source_port = flow->destination_port;
	flow->destination = address;
	flow->destination_port = port;
}

/* Returns the handshake with this hash, or NULL. The index is opaque: the verifier checks one entry, not two. */
static __always_inline struct handshake *find(const struct tp_packet *packet, struct bucket *bucket, __u32 hash)
{
	struct handshake *two = bucket->handshakes;
	__u32 place = tp_opaque(packet, two[1].begun && two[1].hash == hash) & 1;

	return two[place].begun && two[place].hash == hash ? &two[place] : 0;
}

/* Returns a free entry, or the older handshake. */
static __always_inline struct handshake *oldest(const struct tp_packet *packet, struct bucket *bucket)
{
	struct handshake *two = bucket->handshakes;

	return &two[tp_opaque(packet, two[1].begun < two[0].begun) & 1];
}

static __always_inline void begin(const struct tp_packet *packet, const struct tp_flow *flow, struct bucket *bucket, __u32 hash,
				  __u32 sequence)
{
	struct handshake *handshake = find(packet, bucket, hash);
	struct latency *latency = latency_of(flow);

	if (handshake && handshake->sequence == sequence) {
		if (latency)
			tp_add(&latency->repeated_total, 1);
		return;
	}
	if (!handshake)
		handshake = oldest(packet, bucket);
	handshake->hash = hash;
	handshake->sequence = sequence;
	handshake->length = packet->payload_length;
	handshake->begun = tp_now();
	handshake->answered = 0;
	if (latency)
		tp_add(&latency->begun_total, 1);
}

static __always_inline void answer(const struct tp_flow *flow, struct handshake *handshake, __u32 sequence)
{
	__u64 now = tp_now(), nanoseconds = since(handshake->begun, now);
	struct latency *latency = latency_of(flow);

	handshake->server_sequence = sequence;
	handshake->answered = now;
	tp_histogram_sum(server_side, nanoseconds);
	if (latency) {
		tp_add(&latency->answered_total, 1);
		tp_add(&latency->server_side_nanoseconds_total, nanoseconds);
		tp_max(&latency->server_side_nanoseconds_max, nanoseconds);
	}
}

/* Measures nothing if the SYN-ACK took another path. */
static __always_inline void complete(const struct tp_flow *flow, const struct handshake *handshake)
{
	__u64 nanoseconds = since(handshake->answered, tp_now());
	struct latency *latency = latency_of(flow);

	if (latency)
		tp_add(&latency->completed_total, 1);
	if (!handshake->answered)
		return;
	tp_histogram_sum(client_side, nanoseconds);
	if (latency) {
		tp_add(&latency->client_side_nanoseconds_total, nanoseconds);
		tp_max(&latency->client_side_nanoseconds_max, nanoseconds);
	}
}

/* Tells whether a sequence number follows the SYN, or the data in the SYN. */
static __always_inline int follows(const struct handshake *handshake, __u32 sequence)
{
	return sequence - (handshake->sequence + 1) <= handshake->length;
}

/* Counts a failed handshake. */
static __always_inline void fail(const struct tp_flow *flow, int refused)
{
	struct latency *latency = latency_of(flow);

	if (latency)
		tp_add(refused ? &latency->refused_total : &latency->aborted_total, 1);
}

TP_PROBE(measure_handshakes, packet)
{
	__u32 sequence, acknowledged;
	struct handshake *handshake;
	struct bucket *bucket;
	struct tp_flow flow;
	struct tcphdr *tcp;
	int from_server;
	__u8 flags;
	__u64 hash;

	tp_parse(packet);
	tcp = tp_tcp(packet);
	if (!tcp || !tp_flow(packet, &flow))
		return TP_PASS;
	sequence = bpf_ntohl(tcp->seq);
	acknowledged = bpf_ntohl(tcp->ack_seq);
	flags = packet->tcp_flags & (FLAG_FIN | FLAG_SYN | FLAG_RST | FLAG_ACK);
	/* A server answers a SYN with SYN-ACK or RST-ACK. A client aborts with RST alone. */
	from_server = flags == (FLAG_SYN | FLAG_ACK) || flags == (FLAG_RST | FLAG_ACK);
	if (from_server)
		turn(&flow);
	hash = tp_hash(&flow, sizeof(flow), tp_ifindex(packet));
	bucket = tp_at_index(handshakes, hash >> 32 & (HANDSHAKES / 2 - 1));
	if (!bucket)
		return TP_PASS;
	if (flags == FLAG_SYN) {
		begin(packet, &flow, bucket, hash, sequence);
		return TP_PASS;
	}
	handshake = find(packet, bucket, hash);
	if (!handshake)
		return TP_PASS;
	if (flags & FLAG_SYN) {
		if (from_server && !handshake->answered && follows(handshake, acknowledged))
			answer(&flow, handshake, sequence);
		return TP_PASS;
	}
	if (from_server) {
		if (handshake->answered || !follows(handshake, acknowledged))
			return TP_PASS;
		fail(&flow, 1);
	} else if (flags & FLAG_RST) {
		fail(&flow, 0);
	} else if (flags & FLAG_ACK && (handshake->answered ? (__s32)(acknowledged - handshake->server_sequence) > 0
							    : follows(handshake, sequence))) {
		complete(&flow, handshake);
	} else {
		return TP_PASS;
	}
	handshake->begun = 0;
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
