// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs that no probe may have, whatever its verdict: a case for each #ifdef, at the hooks behind it. They are refused
// for the lines with "refused", and for no others.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifdef TC
#define CONTEXT struct __sk_buff
#define PROGRAM SEC("tc")
#else
#define CONTEXT struct xdp_md
#define PROGRAM SEC("xdp")
#endif

#define NOINLINE __attribute__((noinline))

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

#ifndef NUMBER
#define NUMBER 5
#endif

/* A load of 64 bits that the kernel takes for a reference of the given kind. */
void *reference(__u64 kind, __u64 number) asm("llvm.bpf.pseudo");

#ifdef CASE_descriptor_of_a_map // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(reference(1, 5), &key); // refused

	if (value)
		*value = 0;
	return 0;
}
#endif

#ifdef CASE_descriptor_of_a_value // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = reference(2, NUMBER); // refused

	*value = 0;
	return 0;
}
#endif

/* A linker writes into the instruction at a relocation, and into the one after it. */
#ifdef CASE_relocation_at_a_store // xdp tc
static volatile __u64 target = 1;
PROGRAM int probe(CONTEXT *ctx)
{
	target++;
	asm volatile(".quad target + 0x1fff80a62\n\tr0 = 2\n\texit" : : : "r0", "memory"); // refused
	return 2;
}
#endif

#ifdef CASE_relocation_at_a_number // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	asm volatile(".quad counts + 0x1000000b7\n\texit" : : : "r0", "memory"); // refused
	return 2;
}
#endif

#ifdef CASE_variable_of_the_kernel // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = reference(3, 5); // refused

	return *value;
}
#endif

#ifdef CASE_index_of_a_map // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(reference(5, 0), &key) != 0; // refused
}
#endif

#ifdef CASE_index_of_a_value // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = reference(6, 0); // refused

	return *value;
}
#endif

#ifdef CASE_reference_in_a_subprogram // xdp tc
static NOINLINE int read(void)
{
	__u64 *value = reference(2, 4); // refused

	return *value;
}

PROGRAM int probe(CONTEXT *ctx)
{
	return read();
}
#endif

#ifdef CASE_reference_that_is_not_reached // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u32 never = 0;

	asm volatile("%0 = 0" : "=r"(never));
	if (never) {
		__u64 *value = reference(2, 4); // refused

		return *value;
	}
	return 0;
}
#endif

#ifdef CASE_kernel_function_by_number // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	asm volatile("r1 = 0\n"
		     ".byte 0x85, 0x20, 0, 0, 0x39, 0x30, 0, 0" ::: "r0", "r1", "r2", "r3", "r4", "r5"); // statement
	return 0;
}
#endif

#ifdef CASE_kernel_function_by_name // xdp tc
extern void bpf_rcu_read_lock(void) __attribute__((section(".ksyms")));

PROGRAM int probe(CONTEXT *ctx)
{
	bpf_rcu_read_lock(); // refused
	return 0;
}
#endif

#ifdef CASE_call_through_a_register // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	asm volatile("r1 = 1\n"
		     ".byte 0x8d, 0x01, 0, 0, 0, 0, 0, 0" ::: "r0", "r1", "r2", "r3", "r4", "r5"); // statement
	return 0;
}
#endif

#ifdef CASE_no_instruction // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	asm volatile(".byte 0xff, 0xff, 0, 0, 0, 0, 0, 0"); // statement
	return 0;
}
#endif

#ifdef CASE_tail_call // xdp tc
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps"); // refused

PROGRAM int probe(CONTEXT *ctx)
{
	bpf_tail_call(ctx, &programs, 1); // refused
	return 0;
}
#endif

#ifdef CASE_loop_in_a_loop // xdp tc
static long inner(__u32 index, __u64 *sum)
{
	*sum += index;
	return 0;
}

static long outer(__u32 index, __u64 *sum)
{
	bpf_loop(1 << 23, inner, sum, 0);
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 sum = 0;

	bpf_loop(1 << 23, outer, &sum, 0); // refused
	return sum == 7;
}
#endif

#ifdef CASE_loop_in_a_loop_over_entries // xdp tc
static long inner(__u32 index, __u64 *sum)
{
	*sum += index;
	return 0;
}

static long outer(void *map, __u32 *key, __u64 *value, __u64 *sum)
{
	bpf_loop(*value, inner, sum, 0);
	bpf_loop(*value + 1, inner, sum, 0);
	bpf_loop(*value + 2, inner, sum, 0);
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 sum = 0;

	bpf_for_each_map_elem(&counts, outer, &sum, 0); // refused
	return sum == 7;
}
#endif

#ifdef CASE_loop_in_a_loop_that_the_verifier_follows // xdp tc
static long inner(__u32 index, __u64 *sum)
{
	*sum += index;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 sum = 0;

#pragma clang loop unroll(disable)
	for (int i = 0; i < 1000; i++)
		bpf_loop(1 << 23, inner, &sum, 0); // refused
	return sum == 7;
}
#endif

#ifdef CASE_memory_of_the_kernel // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 secret[4] = {};

	bpf_probe_read_kernel(secret, sizeof(secret), (void *)ctx);	 // refused
	bpf_probe_read_kernel_str(secret, sizeof(secret), (void *)ctx);	 // refused
	bpf_probe_read_user(secret, sizeof(secret), (void *)ctx);	 // refused
	bpf_probe_read(secret, sizeof(secret), (void *)ctx);		 // refused
	static const char format[] = "%pks";

	bpf_snprintf((char *)secret, sizeof(secret), format, secret, 8); // refused
	return secret[0];
}
#endif

#ifdef CASE_tasks // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 task = bpf_get_current_task(); // refused

	return task;
}
#endif

#ifdef CASE_buffer_of_a_user // xdp tc
static long take(void *dynptr, void *context)
{
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_USER_RINGBUF);
	__uint(max_entries, 4096);
} buffer SEC(".maps"); // refused

PROGRAM int probe(CONTEXT *ctx)
{
	return bpf_user_ringbuf_drain(&buffer, take, 0, 0); // refused
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
