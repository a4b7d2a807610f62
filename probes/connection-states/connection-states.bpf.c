// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * connection-states: counts TCP connections by state and by the way they end. Both directions share one table.
 *
 *	CONNECTIONS=n	size of the table, a power of two (default 8192)
 *	OPENING=n	timeout of an incomplete handshake in seconds (default 60)
 *	IDLE=n		timeout of an established connection in seconds (default 7440)
 */
#include <twinprobe.h>

#ifndef CONNECTIONS
#define CONNECTIONS 8192
#endif
#ifndef OPENING
#define OPENING 60
#endif
#ifndef IDLE
#define IDLE 7440
#endif

#define FLAG_FIN 0x01
#define FLAG_SYN 0x02
#define FLAG_RST 0x04
#define FLAG_ACK 0x10

/* The unit of times is 2^20 ns, about a millisecond. */
#define TICK 20
#define TICKS(seconds) ((__u32)((seconds) * 1000000000ULL >> TICK))

/* The order is that of struct connections. */
enum state {
	FREE,
	SYN_SENT,
	SYN_RECEIVED,
	ESTABLISHED,
	HALF_CLOSED,
	CLOSING,
	TIME_WAIT,
	RESET,
};

struct connections {
	__s64 syn_sent;
	__s64 syn_received;
	__s64 established;
	__s64 half_closed;	/* one side has sent FIN */
	__s64 closing;		/* both sides have sent FIN */
	__s64 time_wait;	/* has ended; late packets don't begin a new connection */
	__s64 reset;		/* has ended by RST; late packets don't begin a new one */
};

/* The order is that of struct events. */
enum event {
	NOTHING,
	BEGUN,
	FOUND,
	OPENED,
	CLOSED,
	RESET_BY_OPENER,
	RESET_BY_OTHER,
	REFUSED,
	ABORTED,
	UNANSWERED,
	INCOMPLETE,
	EXPIRED,
	DISPLACED,
};

struct events {
	__u64 begun_total;		/* a handshake has begun */
	__u64 found_total;		/* began before the probe saw it */
	__u64 opened_total;		/* the handshake is complete */
	__u64 closed_total;		/* both sides have closed */
	__u64 reset_by_opener_total;
	__u64 reset_by_other_total;
	__u64 refused_total;		/* the other side sent RST in the handshake */
	__u64 aborted_total;		/* the opener sent RST in the handshake */
	__u64 unanswered_total;		/* no answer to the SYN */
	__u64 incomplete_total;		/* no answer to the SYN-ACK */
	__u64 expired_total;		/* idle for too long */
	__u64 displaced_total;		/* a new connection took its entry */
};

struct connection {
	__u32 hash;
	__u32 last;	/* time of the last packet */
	__u8 state;
	__u8 opener;	/* direction of the SYN: TP_FORTH or TP_BACK */
	__u8 finished;	/* directions that have sent FIN */
	__u8 unused;
};

#define WAYS 4

/* A bucket fits one cache line of 64 bytes, because cache misses cost the most. */
struct bucket {
	struct bpf_spin_lock lock;
	struct connection connections[WAYS];
	__u32 unused[3];
};

/* Both directions share these three maps. Both twins share `table` and `now`, because `now` counts its entries. */
TP_ARRAY(table, struct bucket, CONNECTIONS / WAYS);
TP_ARRAY(now, struct connections, 1);
TP_ARRAY(events, struct events, 1);
/* Index of the bucket that sweep() checks next. */
TP_PERCPU_ARRAY(next, __u32, 1);

static __always_inline __u32 limit_of(__u32 state)
{
	switch (state) {
	case SYN_SENT:
	case SYN_RECEIVED:
		return TICKS(OPENING);
	case ESTABLISHED:
		return TICKS(IDLE);
	case HALF_CLOSED:
		return TICKS(600);
	case RESET:
		return TICKS(10);
	}
	return TICKS(60);
}

static __always_inline int is_over(const struct connection *connection, __u32 time)
{
	/* The difference is negative if another CPU's clock is ahead. */
	return connection->state != FREE && (__s32)(time - connection->last) > 0 &&
	       time - connection->last > limit_of(connection->state);
}

static __always_inline void count(struct connections *all, __u32 state, __s64 by)
{
	__u32 i = state - 1;

	asm volatile("" : "+r"(i));
	if (i < sizeof(*all) / sizeof(__s64))
		tp_add((__s64 *)all + i, by);
}

static __always_inline void note(struct events *all, __u32 event)
{
	__u32 i = event - 1;

	asm volatile("" : "+r"(i));
	if (i < sizeof(*all) / sizeof(__u64))
		tp_add((__u64 *)all + i, 1);
}

static __always_inline __u32 end_of(__u32 state)
{
	switch (state) {
	case SYN_SENT:
		return UNANSWERED;
	case SYN_RECEIVED:
		return INCOMPLETE;
	case TIME_WAIT:
	case RESET:
		return NOTHING;
	}
	return EXPIRED;
}

/* Removes one expired connection from the next bucket. Each packet calls it, because there is no timer. */
static __always_inline void sweep(const struct tp_packet *packet, struct connections *all, struct events *noted, __u32 time)
{
	__u32 i, place = WAYS, state = FREE, *cursor = tp_at_index(next, 0);
	struct connection *connection;
	struct bucket *bucket;

	if (!cursor)
		return;
	bucket = tp_at_index(table, (*cursor)++ & (CONNECTIONS / WAYS - 1));
	if (!bucket)
		return;
#pragma unroll
	for (i = 0; i < WAYS; i++) {
		if (is_over(&bucket->connections[i], time))
			place = i;
	}
	place = tp_opaque(packet, place);
	if (place >= WAYS)
		return;
	connection = &bucket->connections[place];
	bpf_spin_lock(&bucket->lock);
	if (is_over(connection, time)) {
		state = connection->state;
		connection->state = FREE;
	}
	bpf_spin_unlock(&bucket->lock);
	count(all, state, -1);
	if (state != FREE)
		note(noted, end_of(state));
}

/* Returns the next state, and sets the event. */
static __always_inline __u32 follow(struct connection *connection, __u8 flags, __u8 way, __u32 *event)
{
	__u32 state = connection->state;

	if (flags & FLAG_RST) {
		if (state == FREE || state == TIME_WAIT || state == RESET)
			return state;
		if (state == SYN_SENT || state == SYN_RECEIVED)
			*event = way == connection->opener ? ABORTED : REFUSED;
		else
			*event = way == connection->opener ? RESET_BY_OPENER : RESET_BY_OTHER;
		return RESET;
	}
	if (flags & FLAG_SYN) {
		if (state == FREE || ((state == TIME_WAIT || state == RESET) && !(flags & FLAG_ACK))) {
			connection->finished = 0;
			connection->opener = flags & FLAG_ACK ? way ^ (TP_FORTH | TP_BACK) : way;
			*event = BEGUN;
			return flags & FLAG_ACK ? SYN_RECEIVED : SYN_SENT;
		}
		return state == SYN_SENT && way != connection->opener ? SYN_RECEIVED : state;
	}
	if (!(flags & FLAG_ACK))
		return state;
	if (state == FREE) {
		if (flags & FLAG_FIN)
			return FREE;
		connection->finished = 0;
		connection->opener = way;
		*event = FOUND;
		return ESTABLISHED;
	}
	if (state == TIME_WAIT || state == RESET || (state == SYN_SENT && way != connection->opener))
		return state;
	if (state == SYN_SENT || (state == SYN_RECEIVED && way == connection->opener)) {
		*event = OPENED;
		state = ESTABLISHED;
	}
	if (flags & FLAG_FIN) {
		connection->finished |= way;
		return connection->finished == (TP_FORTH | TP_BACK) ? CLOSING : HALF_CLOSED;
	}
	if (state == CLOSING) {
		*event = CLOSED;
		return TIME_WAIT;
	}
	return state;
}

TP_PROBE(follow_connections, packet)
{
	__u32 i, place = WAYS, oldest = 0, before = FREE, after, displaced = FREE, event = NOTHING, time = tp_now() >> TICK;
	struct connections *all = tp_at_index(now, 0);
	struct events *noted = tp_at_index(events, 0);
	struct connection *connection;
	struct bucket *bucket;
	struct tp_flow flow;
	__s32 silent = -1;
	__u64 hash;
	__u8 way;

	if (!all || !noted)
		return TP_PASS;
	tp_parse(packet);
	sweep(packet, all, noted, time);
	if (packet->protocol != IPPROTO_TCP || !packet->l4)
		return TP_PASS;
	way = tp_biflow(packet, &flow);
	if (!way)
		return TP_PASS;
	way = tp_opaque(packet, way);
	hash = tp_hash(&flow, sizeof(flow), tp_ifindex(packet));
	bucket = tp_at_index(table, hash >> 32 & (CONNECTIONS / WAYS - 1));
	if (!bucket)
		return TP_PASS;
	bpf_spin_lock(&bucket->lock);
#pragma unroll
	for (i = 0; i < WAYS; i++) {
		struct connection *each = &bucket->connections[i];
		__s32 age = each->state == FREE ? 0x7fffffff : (__s32)(time - each->last);

		if (each->state != FREE && each->hash == (__u32)hash)
			place = i;
		if (age > silent) {
			silent = age;
			oldest = i;
		}
	}
	place = tp_opaque(packet, place);
	oldest = tp_opaque(packet, oldest) & (WAYS - 1);
	if (place >= WAYS) {
		connection = &bucket->connections[oldest];
		displaced = connection->state;
		connection->state = FREE;
	} else {
		connection = &bucket->connections[place];
		before = connection->state;
	}
	after = follow(connection, packet->tcp_flags, way, &event);
	if (displaced != FREE && after == FREE) {
		/* The packet begins no connection. The old entry stays. */
		connection->state = displaced;
		displaced = FREE;
	} else {
		connection->state = after;
		connection->hash = hash;
		connection->last = time;
	}
	bpf_spin_unlock(&bucket->lock);
	if (displaced != FREE) {
		count(all, displaced, -1);
		if (displaced != TIME_WAIT && displaced != RESET)
			note(noted, DISPLACED);
	}
	if (before != after) {
		count(all, before, -1);
		count(all, after, 1);
	}
	note(noted, event);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
