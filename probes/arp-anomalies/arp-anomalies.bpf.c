// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * arp-anomalies: ARP messages by kind, addresses that change their MAC, senders that are not who they say, and senders that
 * ask for many addresses.
 *
 *	ADDRESSES=n	claimed addresses at most; those that were silent the longest make room (default 512)
 *	SENDERS=n	senders of requests at most, likewise (default 256)
 */
#define TP_LABELS 0
#define TP_EXTENSIONS 0
#include <twinprobe.h>

#ifndef ADDRESSES
#define ADDRESSES 512
#endif
#ifndef SENDERS
#define SENDERS 256
#endif

#define VLAN 0xfff
#define ETHERNET 1
#define OPERATION_REQUEST 1
#define OPERATION_REPLY 2

#define BYTES 32
#define BITS (BYTES * 8)

enum message {
	REQUEST,
	REPLY,
	PROBE,			/* a request without a sender's address: is the address free? */
	GRATUITOUS_REQUEST,	/* for the sender's own address: an announcement */
	GRATUITOUS_REPLY,
	OTHER_OPERATION,
	OTHER_ADDRESSES,	/* not of IPv4 on Ethernet, or of other lengths */
	CUT_OFF,
};

enum anomaly {
	MOVED_ADDRESS,		/* another MAC has claimed the address before */
	WRONG_SOURCE,		/* the sender's MAC is not the frame's source */
	BAD_MAC,		/* the sender's MAC is a group's, or zeros */
	BAD_ADDRESS,		/* the sender's address is a group's, broadcast or loopback */
	REPLY_TO_ALL,		/* a reply for one host that is sent to all */
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

/* Each VLAN is a network of its own; 0 without a tag. */
struct address {
	__u32 vlan;
	__be32 address TP_AS(ipv4);
};

struct claim {
	__u64 claims_total;
	__u64 changes_total;
	__u8 mac[6] TP_AS(mac);
	__u8 former_mac[6] TP_AS(mac);
};

struct sender {
	__u8 mac[6] TP_AS(mac);
	__u16 vlan;
};

/*
 * Linear counting: each address sets one of 256 bits, that of its hash. b set bits stand for about -256 ln(1 - b / 256)
 * different ones.
 */
struct requests {
	__u64 requests;
	__u32 different;	/* addresses, estimated */
	__u32 used;		/* bits that are set */
	__u8 bits[BYTES] TP_AS(hex);
};

TP_PERCPU_HASH(messages, enum message, struct counters, 16);
TP_PERCPU_HASH(anomalies, enum anomaly, __u64, 16);
TP_LRU_HASH(claims, struct address, struct claim, ADDRESSES);
TP_LRU_HASH(senders, struct sender, struct requests, SENDERS);

static __always_inline void found(enum anomaly anomaly)
{
	__u64 *count = tp_get(anomalies, &anomaly);

	if (count)
		(*count)++;
}

static __always_inline int same(const __u8 *a, const __u8 *b)
{
	const __u16 *x = (const __u16 *)a, *y = (const __u16 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

static __always_inline enum message kind_of(const struct tp_arp_header *arp, __be32 sender, __be32 target)
{
	__u16 operation = bpf_ntohs(arp->operation);

	if (arp->hardware != bpf_htons(ETHERNET) || arp->protocol != bpf_htons(ETH_P_IP) || arp->hardware_length != 6 ||
	    arp->protocol_length != 4)
		return OTHER_ADDRESSES;
	if (operation == OPERATION_REQUEST)
		return !sender ? PROBE : sender == target ? GRATUITOUS_REQUEST : REQUEST;
	if (operation == OPERATION_REPLY)
		return sender == target ? GRATUITOUS_REPLY : REPLY;
	return OTHER_OPERATION;
}

/* A sender says which MAC its address has. */
static __always_inline void claim(const struct tp_arp_header *arp, __u32 vlan, __be32 address)
{
	struct address key = { .vlan = vlan, .address = address };
	struct claim *claim = tp_get(claims, &key);

	if (!claim)
		return;
	if (claim->claims_total && !same(claim->mac, arp->sender_mac)) {
		tp_add(&claim->changes_total, 1);
		__builtin_memcpy(claim->former_mac, claim->mac, 6);
		found(MOVED_ADDRESS);
	}
	__builtin_memcpy(claim->mac, arp->sender_mac, 6);
	tp_add(&claim->claims_total, 1);
}

static __always_inline void ask(const struct ethhdr *eth, __u32 vlan, __be32 target)
{
	struct sender sender = { .vlan = vlan };
	__u64 hash = tp_mix(target);
	struct requests *requests;
	__u8 *byte, bit = 1 << (hash & 7);

	__builtin_memcpy(sender.mac, eth->h_source, 6);
	requests = tp_get(senders, &sender);
	if (!requests)
		return;
	tp_add(&requests->requests, 1);
	byte = &requests->bits[hash >> 3 & (BYTES - 1)];
	if (*byte & bit)
		return;
	*byte |= bit;
	requests->used++;
	/* 256 ln(2) (8 - log2(256 - b)): logarithms are times 65536, and 11357 is 256 ln(2) times 64. */
	requests->different = (((8 << 16) - tp_log2_fixed(BITS - requests->used)) * 11357ULL + (1 << 21)) >> 22;
}

TP_PROBE(watch_arp, packet)
{
	__be32 sender = 0, target = 0;
	struct tp_arp_header arp = {};
	enum message message;
	struct ethhdr *eth;
	__u32 vlan;

	TP_SEES(tags);
	tp_parse(packet);
	eth = tp_ethernet(packet);
	if (packet->ether_type != ETH_P_ARP || !eth)
		return TP_PASS;
	message = CUT_OFF;
	if (tp_load(packet, packet->l3, &arp)) {
		__builtin_memcpy(&sender, arp.sender_ip, 4);
		__builtin_memcpy(&target, arp.target_ip, 4);
		message = kind_of(&arp, sender, target);
	}
	/* Opaque: the verifier goes through what follows once, not for each kind anew. */
	message = tp_opaque(packet, message);
	tp_count_frames(messages, &message, tp_segments(packet), tp_length(packet));
	if (message >= OTHER_OPERATION)
		return TP_PASS;

	vlan = tp_opaque(packet, packet->vlan[0] & VLAN);
	if (!same(arp.sender_mac, eth->h_source))
		found(WRONG_SOURCE);
	if (arp.sender_mac[0] & 1 || !(arp.sender_mac[0] | arp.sender_mac[1] | arp.sender_mac[2] | arp.sender_mac[3] |
				       arp.sender_mac[4] | arp.sender_mac[5]))
		found(BAD_MAC);
	if (arp.sender_ip[0] >= 224 || arp.sender_ip[0] == 127)
		found(BAD_ADDRESS);
	if (message == REPLY && eth->h_dest[0] & 1)
		found(REPLY_TO_ALL);
	if (message == REQUEST || message == PROBE)
		ask(eth, vlan, target);
	if (sender)
		claim(&arp, vlan, sender);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
