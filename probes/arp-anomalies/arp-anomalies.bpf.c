// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * arp-anomalies: counts ARP messages by kind. Finds addresses with changing MACs, senders with a false MAC, and
 * senders that ask for many addresses.
 *
 *	ADDRESSES=n	entries of the LRU map of claimed addresses (default 512)
 *	SENDERS=n	entries of the LRU map of senders (default 256)
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
	PROBE,			/* without a sender's address: tests whether it is free */
	GRATUITOUS_REQUEST,	/* for the sender's own address: an announcement */
	GRATUITOUS_REPLY,
	OTHER_OPERATION,
	OTHER_ADDRESSES,	/* types or lengths other than Ethernet and IPv4 */
	CUT_OFF,
};

enum anomaly {
	MOVED_ADDRESS,		/* another MAC claimed the address before */
	WRONG_SOURCE,		/* the sender's MAC is not the frame's source */
	BAD_MAC,		/* the sender's MAC is a group address or zero */
	BAD_ADDRESS,		/* the sender's IP is multicast, broadcast or loopback */
	REPLY_TO_ALL,		/* a reply to a group MAC instead of one host */
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

/* VLAN 0: no tag. Two VLANs may use the same address. */
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
 * Linear counting: the hash of an address selects the bit to set. If b of 256 bits are set, the estimate is
 * -256 ln(1 - b / 256) addresses.
 */
struct sketch {
	__u32 used;		/* number of set bits */
	__u8 bits[BYTES];
};

struct requests {
	__u64 requests;
	__u32 different;	/* estimated number of addresses */
	struct sketch sketch TP_AS(hex);
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

/* Records the MAC that a sender claims. */
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
	byte = &requests->sketch.bits[hash >> 3 & (BYTES - 1)];
	if (*byte & bit)
		return;
	*byte |= bit;
	requests->sketch.used++;
	/* Computes 256 ln(2) (8 - log2(256 - b)). Logarithms are times 65536; 11357 is 256 ln(2) times 64. */
	requests->different = (((8 << 16) - tp_log2_fixed(BITS - requests->sketch.used)) * 11357ULL + (1 << 21)) >> 22;
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
	/* Opaque to the verifier, which then checks the code below once, not once for each kind. */
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
