/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Logarithms and hashes. twinprobe.h has the overview. */
#ifndef TWINPROBE_NUMBERS_H
#define TWINPROBE_NUMBERS_H

/* BPF has no instruction that counts zeros. Six halvings find the bit without a branch or a loop. */
static __always_inline __u32 tp_log2(__u64 n)
{
	__u32 high = 0, step;

	step = (n > 0xffffffff) << 5;
	n >>= step;
	high |= step;
	step = (n > 0xffff) << 4;
	n >>= step;
	high |= step;
	step = (n > 0xff) << 3;
	n >>= step;
	high |= step;
	step = (n > 0xf) << 2;
	n >>= step;
	high |= step;
	step = (n > 0x3) << 1;
	n >>= step;
	high |= step;
	return high | (n >> 1);
}

/* For 0 <= f < 1, log2(1 + f) is f + f (1 - f) (0.422 - 0.158 f), at most 0.001 off. */
static __always_inline __u32 tp_log2_fixed(__u64 n)
{
	__u32 high = tp_log2(n);
	__u64 fraction, bend;

	if (!n)
		return 0;
	/* The 16 bits after the highest one. */
	fraction = (high > 16 ? n >> (high - 16) : n << (16 - high)) & 0xffff;
	bend = fraction * (65536 - fraction) >> 16;
	return (high << 16) + fraction + (bend * (27656 - (fraction * 10355 >> 16)) >> 16);
}

/* Each bit of the number changes each bit of the result in half of all cases. */
static __always_inline __u64 tp_mix(__u64 n)
{
	n ^= n >> 32;
	n *= 0xd6e8feb86659fd93;
	n ^= n >> 32;
	n *= 0xd6e8feb86659fd93;
	n ^= n >> 32;
	return n;
}

static __always_inline __u64 tp_hash(const void *key, __u32 size, __u64 seed)
{
	const __u32 *words = key;
	const __u8 *bytes = key;
	__u64 hash = seed ^ size * 0x9e3779b97f4a7c15;
	__u32 i;

#pragma unroll
	for (i = 0; i < size / 4; i++) {
		hash = (hash ^ words[i]) * 0xd6e8feb86659fd93;
		hash ^= hash >> 32;
	}
#pragma unroll
	for (i = size & ~3U; i < size; i++) {
		hash = (hash ^ bytes[i]) * 0xd6e8feb86659fd93;
		hash ^= hash >> 32;
	}
	return tp_mix(hash);
}

/* A number below n from 32 random bits, without a division. */
static __always_inline __u32 tp_scale(__u32 bits, __u32 n)
{
	return (__u64)bits * n >> 32;
}

#endif
