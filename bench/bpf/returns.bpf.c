// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program that calls a function CALLS times, which only returns. Compiled behind hook.h.

static __attribute__((noinline)) int nothing(void *ctx)
{
	asm volatile("" : : : "memory");
	return PASS;
}

SEC(SECTION) int returns(struct CONTEXT *ctx)
{
#pragma unroll
	for (int i = 0; i < CALLS; i++)
		nothing(ctx);
	return PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
