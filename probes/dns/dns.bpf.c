// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * dns: counts DNS questions over UDP by type and name, answers by code, and timeouts. Measures the time from a question
 * to its answer. Both directions share the table of questions, so the server may be on either side.
 *
 *	TIMEOUT=n	timeout of a question in milliseconds (default 5000)
 *	PENDING=n	size of the table of open questions, a power of two (default 8192)
 *	NAMES=n		entries of the LRU map of names (default 4096)
 *	CLIENTS=n	entries of the LRU map of clients (default 0: no client counts)
 *	SERVERS=n	entries of the LRU map of servers (default 1024)
 *	PORT=n		the port of servers (default 53)
 */
#define TP_LABELS 0
#define TP_EXTENSIONS 4
#include <twinprobe.h>

#ifndef TIMEOUT
#define TIMEOUT 5000
#endif
#ifndef PENDING
#define PENDING 8192
#endif
#ifndef NAMES
#define NAMES 4096
#endif
#ifndef CLIENTS
#define CLIENTS 0
#endif
#ifndef SERVERS
#define SERVERS 1024
#endif
#ifndef PORT
#define PORT 53
#endif

#define NAME 64		/* bytes of a name in the key; the rest is cut off */
#define LONGEST 255	/* bytes of the longest name in a message */
#define LABELS 128	/* most labels in a name */
#define OPT 41
/* Times in nanoseconds. A question that comes again within SAME is a repetition, which has no timeout of its own. */
#define TIMED_OUT (TIMEOUT * 1000000LL)
#define SAME (TIMED_OUT > 10000000000LL ? TIMED_OUT : 10000000000LL)
#define WAYS 4		/* entries of a bucket */
#define AT_ONCE 32	/* most questions that one packet takes from the queue */

/* The usual types. Metrics show others as numbers. */
enum type {
	A = 1,
	NS = 2,
	CNAME = 5,
	SOA = 6,
	PTR = 12,
	MX = 15,
	TXT = 16,
	AAAA = 28,
	SRV = 33,
	NAPTR = 35,
	DS = 43,
	RRSIG = 46,
	NSEC = 47,
	DNSKEY = 48,
	NSEC3 = 50,
	TLSA = 52,
	SVCB = 64,
	HTTPS = 65,
	IXFR = 251,
	AXFR = 252,
	ANY = 255,
	CAA = 257,
	NO_QUERY = 0x10000,	/* operations such as notify and update */
};

enum code {
	NOERROR = 0,
	FORMERR = 1,
	SERVFAIL = 2,
	NXDOMAIN = 3,
	NOTIMP = 4,
	REFUSED = 5,
	YXDOMAIN = 6,
	YXRRSET = 7,
	NXRRSET = 8,
	NOTAUTH = 9,
	NOTZONE = 10,
	BADVERS = 16,
	BADCOOKIE = 23,
};

struct header {
	__be16 id;
	__be16 flags;
	__be16 questions;
	__be16 answers;
	__be16 authorities;
	__be16 additional;
};

#define FLAG_ANSWER 0x8000
#define OPERATION 0x7800
#define FLAG_TRUNCATED 0x0200
#define CODE 0x000f

/* The fields after the name of a question, and the OPT record that may follow. */
struct tail {
	__be16 type;
	__be16 class;
	__u8 opt_name;
	__u8 opt_type[2];
	__u8 opt_size[2];
	__u8 opt_code;		/* upper bits of the answer's code */
};

/* A name in lower case, with dots. The root is ".". */
struct name {
	char name[NAME];
};

struct server {
	__u64 questions_total;
	__u64 answers_total;		/* answers to questions that the probe saw */
	__u64 failures_total;		/* answers with codes other than NOERROR and NXDOMAIN */
	__u64 nanoseconds_total;	/* sum of times from question to answer */
	__u64 nanoseconds_max;
	__u64 timeouts_total;		/* questions without an answer in time; repetitions don't count */
};

struct client {
	__u64 questions_total;
	__u64 repeated_total;		/* repetitions among the questions */
	__u64 answers_total;		/* answers to questions that the probe saw */
	__u64 timeouts_total;		/* questions without an answer in time; repetitions don't count */
	__u64 late_total;		/* timeouts whose answer came later */
};

struct messages {
	__u64 repeated_total;		/* repetitions of questions */
	__u64 edns_total;		/* questions with EDNS */
	__u64 truncated_total;		/* answers with the flag TC */
	__u64 unexpected_total;		/* answers without an open question */
	__u64 malformed_total;
	__u64 forgotten_total;		/* open questions that lost their entry to another question */
	__u64 unwatched_total;		/* questions that found no room in the queue of timeouts */
};

struct pending {
	__u64 time;	/* 0 if the entry is free; the lowest bit is LATE */
	__u64 hash;	/* of client, server, query ID and interface */
};

/* Marks a question that has timed out. Its answer may still come. */
#define LATE 1

/* A bucket fits one cache line, because cache misses cost the most. */
struct bucket {
	struct pending pending[WAYS];
};

/* An entry of the queue of timeouts. */
struct watched {
	struct pending pending;
	tp_ip client;
	tp_ip server;
};

/* A name begins with a length byte at byte 7. Its text at byte 8 is then aligned. */
struct work {
	__u8 bytes[512];
	struct name name;
};

TP_PERCPU_HASH(types, enum type, __u64, 512);
TP_PERCPU_HASH(codes, enum code, __u64, 64);
TP_HISTOGRAM_SUM(latency);
TP_LRU_HASH(names, struct name, __u64, NAMES);
TP_LRU_HASH(clients, tp_ip, struct client, CLIENTS ? CLIENTS : 1);
TP_LRU_HASH(servers, tp_ip, struct server, SERVERS);
TP_PERCPU_ARRAY(messages, struct messages, 1);
TP_SCRATCH(scratch, struct work);
/* A hash table in buckets. Both twins share this map and those below, because no metric reads them. */
TP_ARRAY(pending, struct bucket, PENDING / WAYS);
/*
 * The queue of timeouts. Its order is that of the questions, because all have the same timeout. Packets replace a
 * timer: each packet checks the time of the oldest question, and settles some that are due.
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, struct watched);
	__uint(max_entries, PENDING);
} watches SEC(".maps");
/* Time of the oldest question in the queue, or an earlier time. 0 if the queue is empty. */
TP_ARRAY(oldest, __u64, 1);
/* A lock: has an entry while a CPU takes from the queue, because peek and pop are two steps. */
TP_MAP(HASH, turns, __u32, __u32, 1);

/* Counts of clients are optional, because a new client costs as much as the rest of its question. */
static __always_inline struct client *client_of(const tp_ip *address)
{
	return CLIENTS ? tp_get(clients, address) : 0;
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

/*
 * Finds the end of the name in the first `copied` bytes of the scratch memory, and puts dots between its labels.
 * Returns the length with all length bytes, or 0 if the name is invalid. The verifier checks a global function once.
 */
__noinline __u32 read_name(__u32 copied)
{
	struct work *work = tp_scratch(scratch);
	__u32 at = 0;
	int i;

	if (!work)
		return 0;
#pragma clang loop unroll(disable)
	for (i = 0; i < LABELS && at < copied && at < LONGEST; i++) {
		__u64 place = at + 7;
		__u32 length;

		/* The index is in range, but some compilers hide that from the verifier. The mask shows it. */
		asm volatile("%0 &= 511" : "+r"(place));
		length = work->bytes[place];
		if (!length)
			return at + 1;
		/* Compression refers to an earlier name, but nothing precedes this one. */
		if (length > 63)
			return 0;
		work->bytes[place] = '.';
		at += 1 + length;
	}
	return 0;
}

/* Converts eight bytes to lower case. */
static __always_inline __u64 lower(__u64 word)
{
	__u64 low = word & 0x7f7f7f7f7f7f7f7f;
	__u64 capital = low + 0x3f3f3f3f3f3f3f3f & ~(low + 0x2525252525252525) & ~word & 0x8080808080808080;

	return word | capital >> 2;
}

/* Counts the name of `length` bytes in the scratch memory. */
__noinline int count_name(__u32 length)
{
	struct work *work = tp_scratch(scratch);
	__u64 *from, *to, *count;
	__u32 i;

	if (!work)
		return 0;
	from = (__u64 *)(work->bytes + 8);
	to = (__u64 *)&work->name;
	if (!length) {
		work->bytes[8] = '.';
		length = 1;
	}
#pragma unroll
	for (i = 0; i < NAME / 8; i++) {
		if (length >= 8 * i + 8)
			to[i] = lower(from[i]);
		else if (length > 8 * i)
			to[i] = lower(from[i] & ~(~0ULL << 8 * (length - 8 * i)));
		else
			to[i] = 0;
	}
	count = tp_get(names, &work->name);
	if (count)
		tp_add(count, 1);
	return 0;
}

static __always_inline struct bucket *bucket_of(__u64 hash)
{
	return tp_at_index(pending, hash >> 32 & (PENDING / WAYS - 1));
}

/* The index is opaque: the verifier checks one entry, not each of them. */
static __always_inline struct pending *find(const struct tp_packet *packet, struct bucket *bucket, __u64 hash)
{
	struct pending *pending;
	__u32 i, found = 0;

#pragma unroll
	for (i = 1; i < WAYS; i++)
		found = bucket->pending[i].hash == hash ? i : found;
	pending = &bucket->pending[tp_opaque(packet, found) & (WAYS - 1)];
	if (pending->hash != hash)
		pending = 0;
	/* Without this, clang compares the hash again instead of testing the pointer. */
	asm volatile("" : "+r"(pending));
	return pending;
}

/* Returns the oldest entry. A free one has time 0. */
static __always_inline struct pending *longest(const struct tp_packet *packet, struct bucket *bucket)
{
	__u64 time = bucket->pending[0].time;
	__u32 i, found = 0;

#pragma unroll
	for (i = 1; i < WAYS; i++) {
		if (bucket->pending[i].time < time) {
			time = bucket->pending[i].time;
			found = i;
		}
	}
	return &bucket->pending[tp_opaque(packet, found) & (WAYS - 1)];
}

static __always_inline int is_due(__u64 time, __u64 now)
{
	/* The difference is negative if another CPU's clock is ahead. */
	return (__s64)(now - time) >= TIMED_OUT;
}

static __always_inline void time_out(struct pending *pending, const tp_ip *of_client, const tp_ip *of_server)
{
	struct client *client = client_of(of_client);
	struct server *server = tp_get(servers, of_server);

	pending->time |= LATE;
	if (client)
		tp_add(&client->timeouts_total, 1);
	if (server)
		tp_add(&server->timeouts_total, 1);
}

/* Returns the entry of a queued question, or NULL if it no longer waits. */
static __always_inline struct pending *waiting(const struct pending *watched)
{
	struct bucket *bucket = bucket_of(watched->hash);
	int i;

	if (!bucket)
		return 0;
	for (i = 0; i < WAYS; i++) {
		struct pending *pending = &bucket->pending[i];

		if (pending->hash == watched->hash && pending->time == watched->time)
			return pending;
	}
	return 0;
}

/* Takes due and answered questions from the queue. The verifier checks a global function once. */
__noinline int settle(__u64 now)
{
	__u64 *first = tp_at_index(oldest, 0);
	__u32 turn = 0;
	int i;

	if (!first || bpf_map_update_elem(&turns, &turn, &turn, BPF_NOEXIST))
		return 0;
	for (i = 0; i < AT_ONCE; i++) {
		struct watched watched = {};
		struct pending *pending;

		/* Precedes the peek, because another CPU pushes a question and then sets this if it is 0. */
		*first = 0;
		asm volatile("" ::: "memory");
		if (bpf_map_peek_elem(&watches, &watched))
			break;
		*first = watched.pending.time;
		pending = waiting(&watched.pending);
		if (pending && !is_due(watched.pending.time, now))
			break;
		bpf_map_pop_elem(&watches, &watched);
		if (pending)
			time_out(pending, &watched.client, &watched.server);
	}
	tp_remove(turns, &turn);
	return 0;
}

static __always_inline void watch(struct messages *all, const struct tp_flow *flow, const struct pending *pending)
{
	struct watched watched = { *pending, flow->source, flow->destination };
	__u64 *first = tp_at_index(oldest, 0);

	if (bpf_map_push_elem(&watches, &watched, BPF_ANY)) {
		settle(pending->time);
		if (bpf_map_push_elem(&watches, &watched, BPF_ANY)) {
			all->unwatched_total++;
			return;
		}
	}
	asm volatile("" ::: "memory");
	if (first && !*first)
		*first = watched.pending.time;
}

static __always_inline void ask(const struct tp_packet *packet, struct messages *all, const struct tp_flow *flow,
				struct bucket *bucket, __u64 hash)
{
	struct pending *pending = find(packet, bucket, hash);
	struct client *client = client_of(&flow->source);
	struct server *server = tp_get(servers, &flow->destination);
	__u64 now = tp_now() & ~(__u64)LATE;

	if (client)
		tp_add(&client->questions_total, 1);
	if (server)
		tp_add(&server->questions_total, 1);
	if (pending && pending->time && (__s64)(now - pending->time) < SAME) {
		all->repeated_total++;
		if (client)
			tp_add(&client->repeated_total, 1);
		return;
	}
	if (!pending)
		pending = longest(packet, bucket);
	if (pending->time && !(pending->time & LATE)) {
		/* The queue may be late. Only the queue knows client and server of another question. */
		if (pending->hash == hash)
			time_out(pending, &flow->source, &flow->destination);
		else
			all->forgotten_total++;
	}
	pending->time = now;
	pending->hash = hash;
	watch(all, flow, pending);
}

static __always_inline void answer(const struct tp_packet *packet, struct messages *all, const struct tp_flow *flow,
				   struct bucket *bucket, __u64 hash, enum code code)
{
	struct pending *pending = find(packet, bucket, hash);
	__u64 now = tp_now(), nanoseconds, is_late;
	struct client *client;
	struct server *server;

	if (!pending || !pending->time) {
		all->unexpected_total++;
		return;
	}
	nanoseconds = now > pending->time ? now - pending->time : 0;
	/* The queue may be late with this timeout. */
	if (!(pending->time & LATE) && (__s64)nanoseconds >= TIMED_OUT)
		time_out(pending, &flow->source, &flow->destination);
	is_late = pending->time & LATE;
	pending->time = 0;
	tp_histogram_sum(latency, nanoseconds);
	client = client_of(&flow->source);
	if (client) {
		tp_add(&client->answers_total, 1);
		if (is_late)
			tp_add(&client->late_total, 1);
	}
	server = tp_get(servers, &flow->destination);
	if (!server)
		return;
	tp_add(&server->answers_total, 1);
	if (code != NOERROR && code != NXDOMAIN)
		tp_add(&server->failures_total, 1);
	tp_add(&server->nanoseconds_total, nanoseconds);
	tp_max(&server->nanoseconds_max, nanoseconds);
}

/* Returns the length of the message by the UDP header, without padding. Returns 0 if the headers disagree. */
static __always_inline __u32 length_of(const struct tp_packet *packet)
{
	struct udphdr *udp = tp_udp(packet);
	__u32 length;

	if (!udp)
		return 0;
	length = bpf_ntohs(udp->len) - sizeof(*udp);
	/* Later fragments have the rest. */
	if (length > packet->payload_length)
		return packet->fragment == TP_FIRST_FRAGMENT && length <= 0xffff ? packet->payload_length : 0;
	return length;
}

TP_PROBE(count_messages, packet)
{
	struct messages *all = tp_at_index(messages, 0);
	struct work *work = tp_scratch(scratch);
	__u32 length, flags, copied, rest, name_end, name = 0;
	struct header header = {};
	struct bucket *bucket;
	struct tail tail = {};
	struct tp_flow flow;
	int is_answer, is_query;
	enum type type = NO_QUERY;
	enum code code;
	__u64 hash, now, *count, *first = tp_at_index(oldest, 0);

	if (first && *first) {
		now = tp_now();
		if (is_due(*first, now))
			settle(now);
	}
	tp_parse(packet);
	if (packet->protocol != IPPROTO_UDP || (packet->destination_port != PORT && packet->source_port != PORT) || !all || !work ||
	    !tp_flow(packet, &flow))
		return TP_PASS;
	length = length_of(packet);
	if (length < sizeof(header) || !tp_load(packet, packet->payload, &header))
		goto malformed;
	flags = bpf_ntohs(header.flags);
	is_answer = !!(flags & FLAG_ANSWER);
	is_query = !(flags & OPERATION);
	if ((is_answer ? packet->source_port : packet->destination_port) != PORT)
		goto malformed;
	/* An OPT record has the upper bits of the code. It follows the question if there are no other records. */
	if (header.questions == bpf_htons(1) &&
	    (is_answer ? !header.answers && !header.authorities && header.additional : is_query)) {
		copied = tp_copy_bytes(packet, packet->payload + sizeof(header), work->bytes + 7, LONGEST);
		rest = length - sizeof(header);
		name = read_name(copied < rest ? copied : rest);
		if (!name || name + 4 > rest)
			goto malformed;
		rest -= name;
		name_end = packet->payload + sizeof(header) + name;
		if (rest >= sizeof(tail) ? !tp_load(packet, name_end, &tail) : !tp_load(packet, name_end, &tail.type))
			goto malformed;
		if (tail.opt_name || tail.opt_type[0] || tail.opt_type[1] != OPT)
			tail.opt_code = tail.opt_type[1] = 0;
	} else if (!is_answer && is_query) {
		goto malformed;
	}
	if (is_answer)
		turn(&flow);
	hash = tp_hash(&flow, sizeof(flow), (__u64)tp_ifindex(packet) << 32 | header.id);
	bucket = bucket_of(hash);
	if (!bucket)
		return TP_PASS;
	if (is_answer) {
		code = (flags & CODE) | tail.opt_code << 4;
		count = tp_get(codes, &code);
		if (count)
			(*count)++;
		all->truncated_total += !!(flags & FLAG_TRUNCATED);
		answer(packet, all, &flow, bucket, hash, code);
		return TP_PASS;
	}
	if (name) {
		type = bpf_ntohs(tail.type);
		all->edns_total += tail.opt_type[1] == OPT && header.additional;
		/* Leaves out the first length byte and the final zero byte. */
		count_name(name > 2 ? name - 2 : 0);
	}
	count = tp_get(types, &type);
	if (count)
		(*count)++;
	ask(packet, all, &flow, bucket, hash);
	return TP_PASS;

malformed:
	all->malformed_total++;
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
