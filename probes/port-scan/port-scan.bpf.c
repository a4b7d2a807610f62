// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * port-scan: estimates how many different ports and addresses each source tries.
 *
 *	SOURCES=n	entries of the LRU map of sources (default 4096)
 */
#include <twinprobe.h>

#ifndef SOURCES
#define SOURCES 4096
#endif

#define FLAG_SYN 0x02
#define FLAG_RST 0x04
#define FLAG_ACK 0x10
#define ECHO_REQUEST 8
#define ECHO_REQUEST_6 128

/*
 * HyperLogLog with 1024 registers of 4 bits. The hash of a port or address selects a register. A register keeps the
 * longest run of low zero bits in its hashes, plus 1. Linear counting estimates small numbers by the empty registers.
 */
#define REGISTERS 1024
#define INDEX_BITS 10
#define HIGHEST 15
/* Linear counting is more exact below this. */
#define FEW (REGISTERS * 5 / 2)
/* 0.7213 / (1 + 1.079 / 1024) * 1024 * 1024 with 15 fraction bits, to divide by the sum of 2^-register. */
#define SCALE 24757591939ULL

struct sketch {
	__u32 used;		/* number of registers above 0 */
	__u32 less;		/* 1024 - sum of 2^-register, with 15 fraction bits */
	__u8 registers[REGISTERS / 2];
};

struct set {
	__u32 different;	/* estimated number */
	struct sketch sketch TP_AS(hex);
};

struct source {
	__u64 tries;		/* packets that begin an exchange */
	struct set ports;
	struct set addresses;
};

TP_LRU_HASH(sources, tp_ip, struct source, SOURCES);
/* The first value of a source, which is too large for the stack. */
TP_ARRAY(blank, struct source, 1);

static __always_inline struct source *source_of(const tp_ip *address)
{
	struct source *source = bpf_map_lookup_elem(&sources, address), *nothing;

	if (source)
		return source;
	nothing = tp_at_index(blank, 0);
	if (!nothing)
		return 0;
	bpf_map_update_elem(&sources, address, nothing, BPF_NOEXIST);
	source = bpf_map_lookup_elem(&sources, address);
	if (!source)
		tp_lose(sources);
	return source;
}

static __always_inline void enter(struct set *set, __u64 hash)
{
	struct sketch *sketch = &set->sketch;
	__u8 *byte = &sketch->registers[hash >> 1 & (REGISTERS / 2 - 1)];
	__u32 shift = (hash & 1) * 4, known = *byte >> shift & 15, now, sum;
	__u64 rest = hash >> INDEX_BITS, many;

	/* The index of the lowest set bit is the number of zeros. The register keeps the maximum. */
	now = tp_log2(rest & -rest) + 1;
	if (!rest || now > HIGHEST)
		now = HIGHEST;
	if (now <= known)
		return;
	*byte += (now - known) << shift;
	sketch->used += !known;
	sketch->less += (1U << (HIGHEST - known)) - (1U << (HIGHEST - now));
	sum = (REGISTERS << HIGHEST) - sketch->less;
	many = SCALE / (sum ? sum : 1);
	/* Computes 1024 ln(2) (10 - log2(1024 - used)). Logarithms are times 65536; 45426 is 1024 ln(2) times 64. */
	if (sketch->used < REGISTERS && many <= FEW)
		many = (((INDEX_BITS << 16) - tp_log2_fixed(REGISTERS - sketch->used)) * 45426ULL + (1 << 21)) >> 22;
	set->different = many;
}

/* Excludes answers: TCP answers have ACK or RST, and UDP answers come from the lower port. */
static __always_inline int begins(const struct tp_packet *packet)
{
	if (!packet->l4)
		return 0;
	switch (packet->protocol) {
	case IPPROTO_TCP:
		return !(packet->tcp_flags & (FLAG_ACK | FLAG_RST));
	case IPPROTO_UDP:
		return packet->destination_port <= packet->source_port;
	case IPPROTO_ICMP:
		return packet->icmp_type == ECHO_REQUEST;
	case TP_ICMPV6:
		return packet->icmp_type == ECHO_REQUEST_6;
	}
	return 0;
}

TP_PROBE(watch_sources, packet)
{
	struct source *source;
	tp_ip address;

	tp_parse(packet);
	if (!begins(packet))
		return TP_PASS;
	address = tp_source(packet);
	source = source_of(&address);
	if (!source)
		return TP_PASS;
	tp_add(&source->tries, 1);
	address = tp_destination(packet);
	enter(&source->addresses, tp_hash(&address, sizeof(address), 0));
	if (packet->destination_port)
		enter(&source->ports, tp_mix(packet->destination_port));
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
