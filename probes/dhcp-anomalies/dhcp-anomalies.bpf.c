// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * dhcp-anomalies: counts messages of DHCP and DHCPv6 by type, and answers by server. Finds signs of a client that takes
 * all addresses of the pool.
 *
 *	SERVERS=n	entries of the LRU map of servers (default 256)
 *	NETWORKS=n	entries of the LRU map of VLANs (default 64)
 */
#define TP_LABELS 0
#include <twinprobe.h>

#ifndef SERVERS
#define SERVERS 256
#endif
#ifndef NETWORKS
#define NETWORKS 64
#endif

#define VLAN 0xfff
#define PORT_SERVER 67
#define PORT_CLIENT 68
#define PORT_CLIENT_6 546
#define PORT_SERVER_6 547

/* RFC 2131: a fixed header, a magic cookie, options. */
#define TO_COOKIE 236
#define TO_OPTIONS 240
#define COOKIE 0x63825363
#define OPTION_PAD 0
#define OPTION_TYPE 53
#define OPTION_SERVER 54
#define OPTION_END 255
#define MAX_OPTIONS 16

#define BYTES 128
#define BITS (BYTES * 8)

enum message {
	NO_TYPE,		/* BOOTP: no type */
	DISCOVER,
	OFFER,
	REQUEST,
	DECLINE,
	ACK,
	NAK,
	RELEASE,
	INFORM,
	OTHER = 254,
	MALFORMED,		/* too short, or a bad length of an option */
};

/* RFC 8415 */
enum message_ipv6 {
	OTHER_V6,
	SOLICIT_V6,
	ADVERTISE_V6,
	REQUEST_V6,
	CONFIRM_V6,
	RENEW_V6,
	REBIND_V6,
	REPLY_V6,
	RELEASE_V6,
	DECLINE_V6,
	RECONFIGURE_V6,
	INFORMATION_REQUEST_V6,
	RELAY_FORWARD_V6,
	RELAY_REPLY_V6,
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

struct server {
	tp_ip address;		/* the server identifier of DHCP, else the packet's source */
	__u8 mac[6] TP_AS(mac);
	__u16 vlan;
};

struct answers {
	__u64 offers_total;	/* DHCPv6: ADVERTISE */
	__u64 acks_total;	/* DHCPv6: REPLY */
	__u64 naks_total;
};

struct sketch {
	__u32 used;		/* number of set bits */
	__u8 bits[BYTES];
};

/*
 * Counters of a VLAN. Linear counting estimates the clients: the hash of a MAC selects the bit to set. If b of 1024
 * bits are set, the estimate is -1024 ln(1 - b / 1024).
 */
struct network {
	__u64 discovers;
	__u64 requests;
	__u64 offers;
	__u64 acks;
	__u64 naks;
	__u64 declines;
	__u64 wrong_macs;	/* clients whose MAC is not the frame's */
	__u32 different;	/* estimated number of clients */
	struct sketch sketch TP_AS(hex);
};

struct bootp {
	__u8 operation;
	__u8 hardware;
	__u8 hardware_length;
	__u8 hops;
	__u32 rest[5];
	__be32 relay;
	__u8 client[6];
	__u8 padding[2];
};

TP_PERCPU_HASH(messages, enum message, struct counters, 32);
TP_PERCPU_HASH(messages_ipv6, enum message_ipv6, struct counters, 32);
TP_LRU_HASH(servers, struct server, struct answers, SERVERS);
TP_LRU_HASH(networks, __u32, struct network, NETWORKS);

static __always_inline int load(const struct tp_packet *packet, __u32 offset, __u32 end, void *bytes, __u32 size)
{
	return offset + size <= end && tp_load_bytes(packet, offset, bytes, size);
}

static __always_inline int same(const __u8 *a, const __u8 *b)
{
	const __u16 *x = (const __u16 *)a, *y = (const __u16 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/* Reads the options. Returns the type of the message, and sets `server` to the server identifier. */
static __always_inline enum message find(const struct tp_packet *packet, __u32 end, __be32 *server)
{
	enum message message = NO_TYPE;
	__u32 at = packet->payload + TO_OPTIONS, code, length;
	__u8 head[2], type;
	int i;

#pragma clang loop unroll(disable)
	for (i = 0; i < MAX_OPTIONS; i++) {
		/* Hides the values from the verifier, which then checks each round once, not once for each path. */
		at = tp_opaque(packet, at);
		message = tp_opaque(packet, message);
		if (!load(packet, at, end, head, 1))
			break;
		code = head[0];
		if (code == OPTION_END)
			break;
		if (code == OPTION_PAD) {
			at++;
			continue;
		}
		if (!load(packet, at, end, head, 2))
			return MALFORMED;
		length = head[1];
		if (at + 2 + length > end)
			return MALFORMED;
		if (code == OPTION_TYPE) {
			if (length != 1 || !load(packet, at + 2, end, &type, 1))
				return MALFORMED;
			message = !type || type > INFORM ? OTHER : type;
		} else if (code == OPTION_SERVER && (length != 4 || !load(packet, at + 2, end, server, 4))) {
			return MALFORMED;
		}
		at += 2 + length;
	}
	return message;
}

static __always_inline void answer(const struct tp_packet *packet, const struct ethhdr *eth, tp_ip address, __u32 vlan, __u32 kind)
{
	struct server server = { .address = address, .vlan = vlan };
	struct answers *answers;

	__builtin_memcpy(server.mac, eth->h_source, 6);
	answers = tp_get(servers, &server);
	if (!answers)
		return;
	if (kind == OFFER)
		tp_add(&answers->offers_total, 1);
	else if (kind == ACK)
		tp_add(&answers->acks_total, 1);
	else
		tp_add(&answers->naks_total, 1);
}

static __always_inline void enter(struct network *network, const __u8 *mac)
{
	__u64 hash = tp_hash(mac, 6, 0);
	__u8 *byte = &network->sketch.bits[hash >> 3 & (BYTES - 1)], bit = 1 << (hash & 7);

	if (*byte & bit)
		return;
	*byte |= bit;
	network->sketch.used++;
	/* Computes 1024 ln(2) (10 - log2(1024 - b)). Logarithms are times 65536; 45426 is 1024 ln(2) times 64. */
	network->different = (((10 << 16) - tp_log2_fixed(BITS - network->sketch.used)) * 45426ULL + (1 << 21)) >> 22;
}

static __always_inline void count_in(struct network *network, enum message message)
{
	switch (message) {
	case DISCOVER:
		tp_add(&network->discovers, 1);
		break;
	case REQUEST:
		tp_add(&network->requests, 1);
		break;
	case OFFER:
		tp_add(&network->offers, 1);
		break;
	case ACK:
		tp_add(&network->acks, 1);
		break;
	case NAK:
		tp_add(&network->naks, 1);
		break;
	case DECLINE:
		tp_add(&network->declines, 1);
		break;
	default:
		break;
	}
}

static __always_inline void watch_ipv4(const struct tp_packet *packet, const struct ethhdr *eth, __u32 vlan, __u32 length)
{
	__u32 end = packet->payload + packet->payload_length;
	enum message message = MALFORMED;
	struct network *network;
	__be32 cookie, server = 0;
	struct bootp bootp = {};

	if (packet->payload_length >= TO_OPTIONS && tp_load(packet, packet->payload, &bootp) &&
	    tp_load(packet, packet->payload + TO_COOKIE, &cookie))
		message = cookie == bpf_htonl(COOKIE) ? find(packet, end, &server) : NO_TYPE;
	message = tp_opaque(packet, message);
	tp_count_frames(messages, &message, tp_segments(packet), length);
	if (message == NO_TYPE || message >= OTHER)
		return;
	network = tp_get(networks, &vlan);
	if (!network)
		return;
	count_in(network, message);
	if (message == OFFER || message == ACK || message == NAK) {
		answer(packet, eth, server ? tp_mapped(server) : tp_source(packet), vlan, message);
		return;
	}
	if (bootp.hardware != 1 || bootp.hardware_length != 6)
		return;
	/* A relay sends from its own MAC. */
	if (!bootp.relay && !same(bootp.client, eth->h_source))
		tp_add(&network->wrong_macs, 1);
	if (message == DISCOVER || message == REQUEST)
		enter(network, bootp.client);
}

static __always_inline void watch_ipv6(const struct tp_packet *packet, const struct ethhdr *eth, __u32 vlan, __u32 length)
{
	enum message_ipv6 message;
	__u8 type = 0;

	if (packet->payload_length < 4 || !tp_load(packet, packet->payload, &type) || type > RELAY_REPLY_V6)
		type = OTHER_V6;
	message = tp_opaque(packet, type);
	tp_count_frames(messages_ipv6, &message, tp_segments(packet), length);
	if (message == ADVERTISE_V6 || message == REPLY_V6)
		answer(packet, eth, tp_source(packet), vlan, message == REPLY_V6 ? ACK : OFFER);
}

TP_PROBE(watch_dhcp, packet)
{
	__u32 length = tp_length(packet), vlan;
	__u16 from, to;
	struct ethhdr *eth;

	TP_SEES(tags);
	tp_parse(packet);
	if (packet->protocol != IPPROTO_UDP || !packet->l4)
		return TP_PASS;
	from = packet->source_port;
	to = packet->destination_port;
	/* Hides the parsed headers from the verifier. It then checks the rest once, not once for each path. */
	tp_locate(packet);
	packet->payload = tp_opaque(packet, packet->payload);
	packet->payload_length = tp_opaque(packet, packet->payload_length);
	vlan = tp_opaque(packet, packet->vlan[0] & VLAN);
	eth = tp_at(packet, 0, sizeof(*eth));
	if (!eth)
		return TP_PASS;
	if (packet->version == 4 && (from == PORT_SERVER || from == PORT_CLIENT) && (to == PORT_SERVER || to == PORT_CLIENT))
		watch_ipv4(packet, eth, vlan, length);
	else if (packet->version == 6 && (to == PORT_SERVER_6 || to == PORT_CLIENT_6))
		watch_ipv6(packet, eth, vlan, length);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
