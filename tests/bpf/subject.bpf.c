// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Observing programs. A test changes their objects at random. FORM chooses one.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#ifdef TC
#define CONTEXT struct __sk_buff
#define PROGRAM SEC("tc")
#define PASS -1
#else
#define CONTEXT struct xdp_md
#define PROGRAM SEC("xdp")
#define PASS 2
#endif

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

__u64 packets, limit = 3;
const volatile __u32 step = 1;
static const __u32 weights[8] = { 1, 70, 4, 2, 0, 9, 3, 5 };

static __attribute__((noinline)) int weigh(__u32 number)
{
	limit += weights[number & 7];
	return number & 3;
}

static long each(__u32 round, __u64 *sum)
{
	*sum += round;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	__u64 scratch[2] = {};
	__u32 key = 0;
	__u64 *count;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return PASS;
	key = eth->h_proto & 3;
#if FORM == 1
	bpf_loop(4, each, &scratch[0], 0);
#elif FORM == 2
	scratch[1] = eth->h_source[5];
	bpf_ringbuf_output(&events, scratch, sizeof(scratch), 0);
#elif FORM == 3 && defined(TC)
	asm volatile("r6 = %0\n\tr0 = *(u8 *)skb[13]" : : "r"(ctx) : "r0", "r1", "r2", "r3", "r4", "r5", "r6");
#endif
	/* The verifier knows that this never runs, so a test may change its relocations. */
	if (step == 7)
		asm volatile("r1 = limit ll\n\tr1 = packets ll\n\tr1 = counts ll\n\tr1 = events ll\n\tr1 = limit ll" : : : "r1");
	packets += step + weigh(key);
	count = bpf_map_lookup_elem(&counts, &key);
	if (count)
		*count += scratch[0] + 1;
	/* Sets registers for an instruction that replaces the last one. */
	asm volatile("r1 = 0\n\tr2 = 0\n\tr3 = 0\n\tr0 = %0\n\texit" : : "i"(PASS) : "r0", "r1", "r2", "r3");
	return PASS;
}

char LICENSE[] SEC("license") = "GPL";
