// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * ntp-monlist: counts NTP messages by kind. Measures how much servers amplify the queries that attacks reflect. Both
 * directions share the map of victims: queries come in, answers go out.
 *
 *	VICTIMS=n	entries of the LRU map of victims (default 1024)
 */
#define TP_LABELS 0
#include <twinprobe.h>

#ifndef VICTIMS
#define VICTIMS 1024
#endif

#define PORT 123
#define MODE 0x07
#define MODE_CONTROL 6
#define MODE_PRIVATE 7
#define RESPONSE 0x80
#define GET_LIST 20
#define GET_LIST_1 42

/* Header bytes of ordinary messages, of mode 6 (RFC 9327) and of mode 7 (private to ntpd). */
#define HEADER 48
#define HEADER_CONTROL 12
#define HEADER_PRIVATE 8

/* The first six are the modes of RFC 5905. */
enum message {
	RESERVED,
	SYMMETRIC_ACTIVE,
	SYMMETRIC_PASSIVE,
	CLIENT,
	SERVER,
	BROADCAST,
	CONTROL_REQUEST,	/* mode 6: variables, list of clients (READ_MRU), ... */
	CONTROL_RESPONSE,
	MONLIST_REQUEST,	/* mode 7, codes 20 and 42: list of clients */
	MONLIST_RESPONSE,
	PRIVATE_REQUEST,	/* mode 7, other codes */
	PRIVATE_RESPONSE,
	TOO_SHORT,		/* shorter than the header of its mode */
};

enum query {
	CONTROL,
	MONLIST,
	PRIVATE,
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

/* The receiver of answers: the source of a query, which may be forged. */
struct victim {
	tp_ip address;
	enum query query;
};

struct amplification {
	__u64 requests;
	__u64 request_bytes;
	__u64 responses;
	__u64 response_bytes;
	__u64 ratio;	/* response bytes per request byte; 0 without a request */
};

struct head {
	__u8 mode;
	__u8 operation;
	__u8 implementation;
	__u8 code;
};

TP_PERCPU_HASH(messages, enum message, struct counters, 16);
TP_LRU_HASH(victims, struct victim, struct amplification, VICTIMS);

static __always_inline enum message kind_of(const struct head *head, __u32 length)
{
	__u8 mode = head->mode & MODE;
	int response;

	if (mode == MODE_CONTROL) {
		if (length < HEADER_CONTROL)
			return TOO_SHORT;
		return head->operation & RESPONSE ? CONTROL_RESPONSE : CONTROL_REQUEST;
	}
	if (mode == MODE_PRIVATE) {
		if (length < HEADER_PRIVATE)
			return TOO_SHORT;
		response = (head->mode & RESPONSE) != 0;
		if (head->code == GET_LIST || head->code == GET_LIST_1)
			return MONLIST_REQUEST + response;
		return PRIVATE_REQUEST + response;
	}
	return length < HEADER ? TOO_SHORT : mode;
}

TP_PROBE(watch_ntp, packet)
{
	struct amplification *amplification;
	__u32 length = tp_length(packet);
	struct victim victim = {};
	enum message message;
	struct head head;
	int response;

	tp_parse(packet);
	if (packet->protocol != IPPROTO_UDP || !packet->l4 || (packet->source_port != PORT && packet->destination_port != PORT))
		return TP_PASS;
	message = TOO_SHORT;
	if (packet->payload_length >= sizeof(head) && tp_load(packet, packet->payload, &head))
		message = kind_of(&head, packet->payload_length);
	/* Opaque to the verifier, which then checks the code below once, not once for each kind. */
	message = tp_opaque(packet, message);
	tp_count_frames(messages, &message, tp_segments(packet), length);
	if (message < CONTROL_REQUEST || message > PRIVATE_RESPONSE)
		return TP_PASS;

	response = (message - CONTROL_REQUEST) & 1;
	victim.address = response ? tp_destination(packet) : tp_source(packet);
	victim.query = (message - CONTROL_REQUEST) >> 1;
	amplification = tp_get(victims, &victim);
	if (!amplification)
		return TP_PASS;
	tp_add(response ? &amplification->responses : &amplification->requests, 1);
	tp_add(response ? &amplification->response_bytes : &amplification->request_bytes, length);
	if (amplification->request_bytes)
		amplification->ratio = amplification->response_bytes / amplification->request_bytes;
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
