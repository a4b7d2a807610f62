/* Jenkins' hash (lookup3), by the names of the kernel's <linux/jhash.h> and with its results. */
#ifndef TWINPROBE_JHASH_H
#define TWINPROBE_JHASH_H

#include <linux/types.h>

#define JHASH_INITVAL 0xdeadbeef

#define TWINPROBE_ROTATE(number, bits) ((number) << (bits) | (number) >> (32 - (bits)))
#define TWINPROBE_JHASH_STEP(one, two, three, bits)                                                        \
	one -= three, one ^= TWINPROBE_ROTATE(three, bits), three += two
#define TWINPROBE_JHASH_END(one, two, bits) one ^= two, one -= TWINPROBE_ROTATE(two, bits)

#define __jhash_mix(a, b, c)                                                                               \
	do {                                                                                                   \
		TWINPROBE_JHASH_STEP(a, b, c, 4);                                                                  \
		TWINPROBE_JHASH_STEP(b, c, a, 6);                                                                  \
		TWINPROBE_JHASH_STEP(c, a, b, 8);                                                                  \
		TWINPROBE_JHASH_STEP(a, b, c, 16);                                                                 \
		TWINPROBE_JHASH_STEP(b, c, a, 19);                                                                 \
		TWINPROBE_JHASH_STEP(c, a, b, 4);                                                                  \
	} while (0)
#define __jhash_final(a, b, c)                                                                             \
	do {                                                                                                   \
		TWINPROBE_JHASH_END(c, b, 14);                                                                     \
		TWINPROBE_JHASH_END(a, c, 11);                                                                     \
		TWINPROBE_JHASH_END(b, a, 25);                                                                     \
		TWINPROBE_JHASH_END(c, b, 16);                                                                     \
		TWINPROBE_JHASH_END(a, c, 4);                                                                      \
		TWINPROBE_JHASH_END(b, a, 14);                                                                     \
		TWINPROBE_JHASH_END(c, b, 24);                                                                     \
	} while (0)

static inline __attribute__((always_inline)) __u32 __jhash_nwords(__u32 a, __u32 b, __u32 c, __u32 initval)
{
	a += initval;
	b += initval;
	c += initval;
	__jhash_final(a, b, c);
	return c;
}

static inline __attribute__((always_inline)) __u32 jhash_3words(__u32 a, __u32 b, __u32 c, __u32 initval)
{
	return __jhash_nwords(a, b, c, initval + JHASH_INITVAL + (3 << 2));
}

static inline __attribute__((always_inline)) __u32 jhash_2words(__u32 a, __u32 b, __u32 initval)
{
	return __jhash_nwords(a, b, 0, initval + JHASH_INITVAL + (2 << 2));
}

static inline __attribute__((always_inline)) __u32 jhash_1word(__u32 a, __u32 initval)
{
	return __jhash_nwords(a, 0, 0, initval + JHASH_INITVAL + (1 << 2));
}

/* The hash of `length` words. */
static inline __attribute__((always_inline)) __u32 jhash2(const __u32 *words, __u32 length, __u32 initval)
{
	__u32 a = JHASH_INITVAL + (length << 2) + initval, b = a, c = a;

	for (; length > 3; length -= 3, words += 3) {
		a += words[0];
		b += words[1];
		c += words[2];
		__jhash_mix(a, b, c);
	}
	if (length == 0)
		return c;
	a += words[0];
	if (length > 1)
		b += words[1];
	if (length > 2)
		c += words[2];
	__jhash_final(a, b, c);
	return c;
}

/* The hash of `length` bytes. */
static inline __attribute__((always_inline)) __u32 jhash(const void *key, __u32 length, __u32 initval)
{
	__u32 a = JHASH_INITVAL + length + initval, b = a, c = a;
	const __u8 *bytes = key;

#define TWINPROBE_WORD(at)                                                                                 \
	((__u32)bytes[at] | (__u32)bytes[at + 1] << 8 | (__u32)bytes[at + 2] << 16 | (__u32)bytes[at + 3] << 24)
	for (; length > 12; length -= 12, bytes += 12) {
		a += TWINPROBE_WORD(0);
		b += TWINPROBE_WORD(4);
		c += TWINPROBE_WORD(8);
		__jhash_mix(a, b, c);
	}
#undef TWINPROBE_WORD
	if (length == 0)
		return c;
#define TWINPROBE_BYTE(word, at)                                                                           \
	if (length > at)                                                                                       \
	word += (__u32)bytes[at] << (at % 4 * 8)
	TWINPROBE_BYTE(a, 0);
	TWINPROBE_BYTE(a, 1);
	TWINPROBE_BYTE(a, 2);
	TWINPROBE_BYTE(a, 3);
	TWINPROBE_BYTE(b, 4);
	TWINPROBE_BYTE(b, 5);
	TWINPROBE_BYTE(b, 6);
	TWINPROBE_BYTE(b, 7);
	TWINPROBE_BYTE(c, 8);
	TWINPROBE_BYTE(c, 9);
	TWINPROBE_BYTE(c, 10);
	TWINPROBE_BYTE(c, 11);
#undef TWINPROBE_BYTE
	__jhash_final(a, b, c);
	return c;
}

#endif
