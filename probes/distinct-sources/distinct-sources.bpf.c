// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* distinct-sources: estimates the number of different source addresses by HyperLogLog. */
#define TP_EXTENSIONS 0
#include <twinprobe.h>

#define REGISTER_BITS 10
#define REGISTERS (1 << REGISTER_BITS)
#define HASH_BITS (64 - REGISTER_BITS)
/* 1.0 as fixed point, in the sum of 2^-register. */
#define ONE (1ULL << 32)
/* HyperLogLog: 0.7213 / (1 + 1.079 / 1024), times 1024 squared. */
#define ALPHA 755542ULL
/* Linear counting is more exact below this. */
#define SMALL (REGISTERS * 5 / 2)

struct sketch {
	__u64 missing;			/* (REGISTERS - sum of 2^-register) * ONE */
	__u64 used;			/* number of registers above 0 */
	__u8 registers[REGISTERS];	/* longest run of zeros in its hashes, plus 1 */
};

struct sources {
	__u64 packets;
	__u64 distinct;			/* estimated number of addresses */
};

TP_ARRAY(sketch, struct sketch, 1);
TP_ARRAY(sources, struct sources, 1);

static __always_inline __u64 estimate(const struct sketch *sketch)
{
	__u64 number = ALPHA * ONE / (REGISTERS * ONE - sketch->missing);

	/* Computes 1024 ln(2) (10 - log2(empty)). Logarithms are times 65536; 45426 is 1024 ln(2) times 64. */
	if (number <= SMALL && sketch->used < REGISTERS)
		number = (((REGISTER_BITS << 16) - tp_log2_fixed(REGISTERS - sketch->used)) * 45426ULL + (1 << 21)) >> 22;
	return number;
}

TP_PROBE(count_sources, packet)
{
	struct sources *all = tp_at_index(sources, 0);
	struct sketch *seen = tp_at_index(sketch, 0);
	__u64 hash, rest, rank;
	tp_ip address;
	__u8 *reg;

	tp_parse(packet);
	if (!packet->version || !seen || !all)
		return TP_PASS;
	tp_add(&all->packets, tp_segments(packet));
	address = tp_source(packet);
	hash = tp_hash(&address, sizeof(address), 0);
	rest = hash >> REGISTER_BITS;
	rank = rest ? HASH_BITS - tp_log2(rest) : HASH_BITS + 1;
	reg = &seen->registers[hash & (REGISTERS - 1)];
	if (rank <= *reg)
		return TP_PASS;
	seen->used += !*reg;
	seen->missing += (ONE >> (*reg & 63)) - (ONE >> (rank & 63));
	*reg = rank;
	all->distinct = estimate(seen);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
