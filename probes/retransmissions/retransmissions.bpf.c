// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * retransmissions: counts TCP segments that are repeated or out of order: in total, by port of the server, and for each
 * flow that has any.
 *
 *	STREAMS=n	size of the table of streams, a power of two; a connection has two streams (default 4096)
 *	FLOWS=n		entries of the LRU map of flows with such segments (default 4096)
 *	PORTS=n		entries of the LRU map of server ports (default 1024)
 *	REORDERING=n	milliseconds after which a segment in a gap is a retransmission, if the round trip is unknown
 *			(default 3)
 */
#include <twinprobe.h>

#ifndef STREAMS
#define STREAMS 4096
#endif
#ifndef FLOWS
#define FLOWS 4096
#endif
#ifndef PORTS
#define PORTS 1024
#endif
#ifndef REORDERING
#define REORDERING 3
#endif

#define FLAG_FIN 0x01
#define FLAG_SYN 0x02
#define FLAG_RST 0x04
#define FLAG_ACK 0x10

/* The unit of times is 1024 ns. They fit 32 bits, and differences are right for half an hour. */
#define TICK 10
#define GAPS 8

/* Only packets with data, SYN or FIN are segments. */
struct segments {
	__u64 segments_total;
	__u64 bytes_total;
	__u64 retransmitted_segments_total;
	__u64 retransmitted_bytes_total;
	__u64 lost_before_segments_total;	/* retransmitted ones that the probe did not see before */
	__u64 needless_segments_total;		/* retransmitted ones that were already acknowledged */
	__u64 out_of_order_segments_total;
	__u64 gaps_total;			/* jumps over missing bytes */
	__u64 probes_total;			/* keep-alives and zero-window probes; not in segments_total */
};

struct service {
	__u16 server_port;
};

struct by_port {
	__u64 segments_total;
	__u64 bytes_total;
	__u64 retransmitted_segments_total;
	__u64 retransmitted_bytes_total;
	__u64 lost_before_segments_total;
	__u64 out_of_order_segments_total;
};

struct trouble {
	__u64 segments_total;			/* all segments, up to the last one that counts below */
	__u64 retransmitted_segments_total;
	__u64 retransmitted_bytes_total;
	__u64 lost_before_segments_total;
	__u64 out_of_order_segments_total;
	__u64 gaps_total;
};

struct gap {
	__u32 start, end;	/* equal if there is no gap */
	__u32 time;		/* time of the segment after the gap */
	__u32 stamp;		/* TCP timestamp of that segment, or 0 */
};

/*
 * The data that one side of a connection sends. The fields before `gaps` fit one cache line, because cache misses
 * cost the most.
 */
struct stream {
	__u32 hash;		/* of the flow and the interface; 0 if the entry is free */
	__u32 last;		/* time of the last packet */
	__u32 next;		/* sequence number after all data so far */
	__u32 acknowledged;	/* acknowledgement number of the last packet */
	__u32 window;		/* 0 stops the other side */
	__u32 segments;		/* since the last call of show() */
	__u32 latest;		/* index of the newest gap */
	__u32 sent;		/* time of the last data in order; 0 if it can't measure a round trip */
	__u32 round_trip;	/* shortest time from here to this side and back; 0 if unknown */
	__u32 server_port;
	__u32 unused[6];
	struct gap gaps[GAPS];
};

struct bucket {
	struct stream streams[2];
};

TP_PERCPU_ARRAY(totals, struct segments, 1);
TP_LRU_PERCPU_HASH(ports, struct service, struct by_port, PORTS);
TP_LRU_HASH(flows, struct tp_flow, struct trouble, FLOWS);
/* A hash table in buckets of two. Both twins share it, because no metric reads it. */
TP_ARRAY(streams, struct bucket, STREAMS / 2);

static __always_inline __s32 behind(__u32 a, __u32 b)
{
	return (__s32)(a - b);
}

static __always_inline struct bucket *bucket_of(__u64 hash)
{
	return tp_at_index(streams, hash >> 32 & (STREAMS / 2 - 1));
}

/* Returns the stream with this hash, or NULL. The index is opaque: the verifier checks one stream, not two. */
static __always_inline struct stream *find(const struct tp_packet *packet, struct bucket *bucket, __u32 hash)
{
	struct stream *stream = &bucket->streams[tp_opaque(packet, bucket->streams[1].hash == hash) & 1];

	if (stream->hash != hash)
		stream = 0;
	/* Without this, clang compares the hash again instead of testing the pointer. */
	asm volatile("" : "+r"(stream));
	return stream;
}

static __always_inline struct stream *oldest(const struct tp_packet *packet, struct bucket *bucket, __u32 now)
{
	struct stream *two = bucket->streams;

	return &two[tp_opaque(packet, two[0].hash && (!two[1].hash || now - two[1].last > now - two[0].last)) & 1];
}

static __always_inline __u64 hash_of(const struct tp_packet *packet, const struct tp_flow *flow)
{
	return tp_hash(flow, sizeof(*flow), tp_ifindex(packet)) | 1;
}

/* Returns the stream of the other side, or NULL. */
static __always_inline struct stream *other_side(const struct tp_packet *packet, const struct tp_flow *flow)
{
	struct tp_flow back = {
		.source = flow->destination,
		.destination = flow->source,
		.source_port = flow->destination_port,
		.destination_port = flow->source_port,
		.protocol = flow->protocol,
	};
	__u64 hash = hash_of(packet, &back);
	struct bucket *bucket = bucket_of(hash);

	return bucket ? find(packet, bucket, hash) : 0;
}

/* A SYN tells which side is the server. Without one, the smaller port is a good guess. */
static __always_inline __u32 server_port(const struct tp_packet *packet, const struct tp_flow *flow)
{
	__u32 from = flow->source_port, to = flow->destination_port;

	if (packet->tcp_flags & FLAG_SYN)
		return packet->tcp_flags & FLAG_ACK ? from : to;
	return from < to ? from : to;
}

/*
 * Measures the time from the last data of the other side to the first packet that acknowledges all of it. Keeps the
 * shortest time, because acknowledgements may wait. After the first result, one packet in 16 is enough.
 */
static __always_inline void measure(const struct tp_packet *packet, const struct tp_flow *flow, struct stream *stream,
				    __u32 acknowledged, __u32 now)
{
	struct stream *other;
	__u32 time;

	if (stream->round_trip && (now & 15 || acknowledged == stream->acknowledged))
		return;
	other = other_side(packet, flow);
	if (!other || !other->sent || other->next != acknowledged)
		return;
	time = now - other->sent;
	if (!time)
		time = 1;
	if (!stream->round_trip || time < stream->round_trip)
		stream->round_trip = time;
	/* Later acknowledgements don't count. */
	other->sent = 0;
}

/* Returns the TCP timestamp (RFC 7323), or 0. Looks only at its usual place, after two NOP options. */
static __always_inline __u32 stamp_of(const struct tp_packet *packet, const struct tcphdr *tcp)
{
	const __be32 *options = (const void *)(tcp + 1);

	if (tcp->doff < 8 || (void *)(options + 3) > packet->end || options[0] != bpf_htonl(0x0101080a))
		return 0;
	return bpf_ntohl(options[1]);
}

static __always_inline void note_gap(const struct tp_packet *packet, struct stream *stream, __u32 start, __u32 end, __u32 time,
				     __u32 stamp)
{
	__u32 i = stream->latest + 1;

	/* The new gap replaces the oldest. */
	i = tp_opaque(packet, i < GAPS ? i : 0);
	if (i >= GAPS)
		return;
	stream->latest = i;
	stream->gaps[i].start = start;
	stream->gaps[i].end = end;
	stream->gaps[i].time = time;
	stream->gaps[i].stamp = stamp;
}

/* The gap that a late segment fills. */
struct due {
	__u32 is_late;		/* 0: the segment fills no gap */
	__u32 time;
	__u32 stamp;
};

/* Removes the bytes of a segment from the gaps. */
static __always_inline struct due fill(const struct tp_packet *packet, struct stream *stream, __u32 start, __u32 end)
{
	__u32 i, rest = 0, rest_end = 0;
	struct due due = {}, rest_due = {};

#pragma unroll
	for (i = 0; i < GAPS; i++) {
		struct gap *gap = &stream->gaps[i];

		if (gap->start == gap->end || behind(end, gap->start) <= 0 || behind(start, gap->end) >= 0)
			continue;
		if (behind(start, gap->start) >= 0) {
			due.is_late = 1;
			due.time = gap->time;
			due.stamp = gap->stamp;
		}
		if (behind(start, gap->start) <= 0) {
			gap->start = behind(end, gap->end) < 0 ? end : gap->end;
		} else {
			if (behind(end, gap->end) < 0) {
				rest = end;
				rest_end = gap->end;
				rest_due.time = gap->time;
				rest_due.stamp = gap->stamp;
			}
			gap->end = start;
		}
	}
	if (rest != rest_end)
		note_gap(packet, stream, rest, rest_end, rest_due.time, rest_due.stamp);
	return due;
}

/*
 * Tells whether a segment was overtaken, not repeated. Different TCP timestamps decide. Without them the delay decides:
 * a sender repeats bytes a round trip after the gap. The measured round trip may contain the wait of an
 * acknowledgement, so half of it is the limit. If timestamps prove a repetition, its delay improves the measurement.
 */
static __always_inline int is_overtaken(struct stream *stream, const struct due *due, __u32 stamp, __u32 now)
{
	__u32 late = now - due->time;

	if (stamp && due->stamp && stamp != due->stamp) {
		if (behind(stamp, due->stamp) < 0)
			return 1;
		if (late && late < stream->round_trip)
			stream->round_trip = late;
		return 0;
	}
	return late < (stream->round_trip ? stream->round_trip / 2 : REORDERING * 1000000U >> TICK);
}

/* Counts all segments of a server port. The verifier checks a global function only once. */
__noinline int count_service(__u32 server_port, __u32 frames, __u32 bytes)
{
	struct service service = { server_port };
	struct by_port *port = tp_get(ports, &service);

	if (port) {
		port->segments_total += frames;
		port->bytes_total += bytes;
	}
	return 0;
}

/* Kinds of late segments. */
enum late {
	OVERTAKEN,
	SENT_AGAIN,
	SENT_AGAIN_AFTER_LOSS,
};

/* Counts late segments of a server port. A SYN or a FIN without data has 0 bytes. */
__noinline int count_late(__u32 server_port, __u32 frames, __u32 bytes, __u32 late)
{
	struct service service = { server_port };
	struct by_port *port = tp_get(ports, &service);

	if (!port)
		return 0;
	if (late == OVERTAKEN) {
		port->out_of_order_segments_total += frames;
		return 0;
	}
	port->retransmitted_segments_total += frames;
	port->retransmitted_bytes_total += bytes;
	if (late == SENT_AGAIN_AFTER_LOSS)
		port->lost_before_segments_total += frames;
	return 0;
}

/* Makes entries only for flows with gaps or late segments. */
static __always_inline struct trouble *show(const struct tp_flow *flow, struct stream *stream)
{
	struct trouble *trouble = tp_get(flows, flow);

	if (trouble) {
		tp_add(&trouble->segments_total, stream->segments);
		stream->segments = 0;
	}
	return trouble;
}

TP_PROBE(follow_segments, packet)
{
	__u32 sequence, end, next, length, bytes, now, stamp, frames = tp_segments(packet);
	struct stream *stream, *receiver = 0;
	struct due due;
	struct segments *all;
	struct trouble *trouble;
	struct bucket *bucket;
	struct tp_flow flow;
	struct tcphdr *tcp;
	__s32 ahead;
	__u64 hash;

	tp_parse(packet);
	tcp = tp_tcp(packet);
	all = tp_at_index(totals, 0);
	/* A RST may have any sequence number. */
	if (!all || !tcp || packet->tcp_flags & FLAG_RST || !tp_flow(packet, &flow))
		return TP_PASS;
	sequence = bpf_ntohl(tcp->seq);
	bytes = packet->payload_length;
	length = bytes + !!(packet->tcp_flags & FLAG_SYN) + !!(packet->tcp_flags & FLAG_FIN);
	end = sequence + length;
	now = tp_now() >> TICK;
	hash = hash_of(packet, &flow);
	bucket = bucket_of(hash);
	if (!bucket)
		return TP_PASS;
	stream = find(packet, bucket, hash);
	/* A new connection: its first packet here, or a SYN with another number. */
	if (!stream || (packet->tcp_flags & FLAG_SYN && stream->next != end)) {
		if (!stream)
			stream = oldest(packet, bucket, now);
		__builtin_memset(stream, 0, sizeof(*stream));
		stream->hash = hash;
		stream->next = sequence;
		stream->server_port = server_port(packet, &flow);
	}
	stream->last = now;
	if (packet->tcp_flags & FLAG_ACK) {
		measure(packet, &flow, stream, bpf_ntohl(tcp->ack_seq), now);
		stream->acknowledged = bpf_ntohl(tcp->ack_seq);
		stream->window = tcp->window;
	}
	next = stream->next;
	ahead = behind(sequence, next);
	if (!length) {
		if (ahead == -1)
			all->probes_total++;
		return TP_PASS;
	}
	if (ahead == 0 || (ahead == -1 && behind(end, next) > 0)) {
		/* The usual case, or data that begins with the byte of a zero-window probe. */
		stream->next = end;
		stream->sent = now ? now : 1;
		all->segments_total += frames;
		all->bytes_total += bytes;
		stream->segments += frames;
		count_service(stream->server_port, frames, bytes);
		return TP_PASS;
	}
	if (ahead < 0)
		receiver = other_side(packet, &flow);
	if (ahead == -1 && bytes == 1 && length == 1 &&
	    (!receiver || behind(receiver->acknowledged, next) >= 0 || !receiver->window)) {
		all->probes_total++;
		return TP_PASS;
	}
	all->segments_total += frames;
	all->bytes_total += bytes;
	stream->segments += frames;
	count_service(stream->server_port, frames, bytes);
	trouble = show(&flow, stream);
	if (behind(end, next) > 0)
		stream->next = end;
	stream->sent = 0;
	stamp = stamp_of(packet, tcp);
	if (ahead > 0) {
		note_gap(packet, stream, next, sequence, now, stamp);
		all->gaps_total++;
		if (trouble)
			tp_add(&trouble->gaps_total, 1);
		return TP_PASS;
	}
	due = fill(packet, stream, sequence, end);
	if (due.is_late && is_overtaken(stream, &due, stamp, now)) {
		all->out_of_order_segments_total += frames;
		count_late(stream->server_port, frames, 0, OVERTAKEN);
		if (trouble)
			tp_add(&trouble->out_of_order_segments_total, frames);
		return TP_PASS;
	}
	/* New data may follow the repeated bytes. */
	if (behind(end, next) > 0)
		bytes = next - sequence;
	all->retransmitted_segments_total += frames;
	all->retransmitted_bytes_total += bytes;
	if (due.is_late)
		all->lost_before_segments_total += frames;
	if (receiver && behind(receiver->acknowledged, end) >= 0)
		all->needless_segments_total += frames;
	count_late(stream->server_port, frames, bytes, due.is_late ? SENT_AGAIN_AFTER_LOSS : SENT_AGAIN);
	if (trouble) {
		tp_add(&trouble->retransmitted_segments_total, frames);
		tp_add(&trouble->retransmitted_bytes_total, bytes);
		if (due.is_late)
			tp_add(&trouble->lost_before_segments_total, frames);
	}
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
