// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * dns: questions by type and by name, answers by code, and the time between the two, of DNS over UDP. Both directions use one
 * table of questions, so that it does not matter on which side client and server are.
 *
 *	PENDING=n	questions that are waited for at most, a power of two (default 4096)
 *	NAMES=n		names at most; those that were not asked for the longest make room (default 4096)
 *	SERVERS=n	servers at most, in the same way (default 1024)
 *	PORT=n		the port of servers (default 53)
 */
#define TP_LABELS 0
#define TP_EXTENSIONS 4
#include <twinprobe.h>

#ifndef PENDING
#define PENDING 4096
#endif
#ifndef NAMES
#define NAMES 4096
#endif
#ifndef SERVERS
#define SERVERS 1024
#endif
#ifndef PORT
#define PORT 53
#endif

#define NAME 64		/* bytes of a name that are shown */
#define LONGEST 255	/* bytes of a name in a message */
#define LABELS 128	/* in a name */
#define OPT 41
/* A question that is sent again within this time, in nanoseconds, is the same one. */
#define SAME 10000000000ULL

/* The usual types; others are shown as numbers. */
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
	NO_QUERY = 0x10000,	/* notifications, updates and other operations */
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

/* The part behind the name of a question, and an OPT record that follows. */
struct tail {
	__be16 type;
	__be16 class;
	__u8 opt_name;
	__u8 opt_type[2];
	__u8 opt_size[2];
	__u8 opt_code;		/* the upper bits of the answer's code */
};

/* In lower case, with dots; the root is ".". */
struct name {
	char name[NAME];
};

struct server {
	__u64 questions_total;
	__u64 answers_total;		/* to questions that were seen */
	__u64 failures_total;		/* of these, other codes than NOERROR and NXDOMAIN */
	__u64 nanoseconds_total;	/* from the question to the answer */
	__u64 nanoseconds_max;
};

struct messages {
	__u64 repeated_total;		/* questions that were sent again */
	__u64 edns_total;		/* questions with EDNS */
	__u64 truncated_total;		/* answers that did not fit */
	__u64 unexpected_total;		/* answers to no question that was seen, or answered before */
	__u64 malformed_total;
};

struct pending {
	__u64 time;	/* 0 at a free place */
	__u64 hash;	/* of client, server, the number of the question and the interface */
};

struct bucket {
	struct pending pending[2];
};

/* The 7 bytes before it make the text of the name aligned. */
struct work {
	__u8 bytes[512];
	struct name name;
};

TP_PERCPU_HASH(types, enum type, __u64, 512);
TP_PERCPU_HASH(codes, enum code, __u64, 64);
TP_HISTOGRAM_SUM(latency);
TP_LRU_HASH(names, struct name, __u64, NAMES);
TP_LRU_HASH(servers, tp_ip, struct server, SERVERS);
TP_PERCPU_ARRAY(messages, struct messages, 1);
TP_SCRATCH(scratch, struct work);
/* A table by hashes, with two places for each. No metric reads the map: both twins share it. */
TP_ARRAY(pending, struct bucket, PENDING / 2);

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
 * Finds the end of the name in the scratch memory, of which so many bytes are there, and puts dots between its labels. Returns
 * the length with all length bytes, or 0 if it is not a name. A function of its own, which the verifier goes through once.
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

		/* It is within the bytes, as clang knows; without the mask, not every compiler shows it to the verifier. */
		asm volatile("%0 &= 511" : "+r"(place));
		length = work->bytes[place];
		if (!length)
			return at + 1;
		/* A question has nothing before it that it could refer to: compression is a trap. */
		if (length > 63)
			return 0;
		work->bytes[place] = '.';
		at += 1 + length;
	}
	return 0;
}

/* Eight bytes in lower case. */
static __always_inline __u64 lower(__u64 word)
{
	__u64 low = word & 0x7f7f7f7f7f7f7f7f;
	__u64 capital = low + 0x3f3f3f3f3f3f3f3f & ~(low + 0x2525252525252525) & ~word & 0x8080808080808080;

	return word | capital >> 2;
}

/* Counts the name in the scratch memory, which has so many bytes. */
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

static __always_inline struct pending *find(const struct tp_packet *packet, struct bucket *bucket, __u64 hash)
{
	struct pending *pending = &bucket->pending[tp_opaque(packet, bucket->pending[1].hash == hash) & 1];

	if (pending->hash != hash)
		pending = 0;
	/* Else clang asks for the hash again where the pointer is not there. */
	asm volatile("" : "+r"(pending));
	return pending;
}

static __always_inline void ask(const struct tp_packet *packet, struct messages *all, const struct tp_flow *flow,
				struct bucket *bucket, __u64 hash)
{
	struct pending *pending = find(packet, bucket, hash);
	struct server *server = tp_get(servers, &flow->destination);
	__u64 now = tp_now();

	if (server)
		tp_add(&server->questions_total, 1);
	if (pending && pending->time && now - pending->time < SAME) {
		all->repeated_total++;
		return;
	}
	if (!pending)
		pending = &bucket->pending[tp_opaque(packet, bucket->pending[1].time < bucket->pending[0].time) & 1];
	pending->time = now;
	pending->hash = hash;
}

static __always_inline void answer(const struct tp_packet *packet, struct messages *all, const struct tp_flow *flow,
				   struct bucket *bucket, __u64 hash, enum code code)
{
	struct pending *pending = find(packet, bucket, hash);
	__u64 now = tp_now(), nanoseconds;
	struct server *server;

	if (!pending || !pending->time) {
		all->unexpected_total++;
		return;
	}
	nanoseconds = now > pending->time ? now - pending->time : 0;
	pending->time = 0;
	tp_histogram_sum(latency, nanoseconds);
	server = tp_get(servers, &flow->destination);
	if (!server)
		return;
	tp_add(&server->answers_total, 1);
	if (code != NOERROR && code != NXDOMAIN)
		tp_add(&server->failures_total, 1);
	tp_add(&server->nanoseconds_total, nanoseconds);
	tp_max(&server->nanoseconds_max, nanoseconds);
}

/* The bytes of the message: not what the link pads, nor more than the header of UDP says. 0 if the headers disagree. */
static __always_inline __u32 length_of(const struct tp_packet *packet)
{
	struct udphdr *udp = tp_udp(packet);
	__u32 length;

	if (!udp)
		return 0;
	length = bpf_ntohs(udp->len) - sizeof(*udp);
	/* The rest of a first fragment comes later. */
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
	__u64 hash, *count;

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
	/* An answer's code goes on in an OPT record, which follows the question where there are no other records. */
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
	bucket = tp_at_index(pending, hash >> 32 & (PENDING / 2 - 1));
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
		/* Without the last dot, which the byte that ends the name stands for. */
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
