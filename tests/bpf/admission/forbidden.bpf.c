// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs that the daemon refuses with every verdict. Each #ifdef is a case, and its comment has the hooks. The
// refusal names exactly the lines with "refused".
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

/* Loads 64 bits that the kernel takes for a reference of the given kind. */
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

#define DATA ((unsigned char *)(long)ctx->data)
#define END ((unsigned char *)(long)ctx->data_end)
#define HIDE(x) asm volatile("" : "+r"(x))

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

static __always_inline __u64 *count(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&counts, &key);
}

#ifdef CASE_structure_of_a_map // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = count(), *map = (__u64 *)&hash;

	HIDE(map);
	if (value)
		*value = map[0]; // refused
	return 0;
}
#endif

#ifdef CASE_structure_of_a_map_in_a_map // xdp tc
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 4);
		__type(key, __u32);
		__type(value, __u64);
	});
} outer SEC(".maps") = { .values = { (void *)&counts } };

PROGRAM int probe(CONTEXT *ctx)
{
	__u32 key = 0;
	__u64 *value = count(), *map = bpf_map_lookup_elem(&outer, &key);

	if (value && map)
		*value = map[0]; // refused
	return 0;
}
#endif

#ifdef CASE_structure_of_a_walked_map // xdp tc
static long walk(__u64 *map, __u32 *key, __u64 *value, void *context)
{
	*value = map[0]; // refused
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	bpf_for_each_map_elem(&counts, walk, 0, 0);
	return 0;
}
#endif

#ifdef CASE_structure_of_a_socket // tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = count(), *tcp;
	struct bpf_sock *sk = ctx->sk;

	if (!value || !sk)
		return 0;
	tcp = (__u64 *)bpf_skc_to_tcp_sock(sk);
	if (tcp)
		*value = tcp[9]; // refused
	return 0;
}
#endif

#ifdef CASE_pointers_in_a_map // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = count(), stack = 0;

	if (!value)
		return 0;
	*(volatile __u64 *)value = (__u64)DATA; // refused
	*(volatile __u64 *)value = (__u64)ctx; // refused
	*(volatile __u64 *)value = (__u64)value; // refused
	*(volatile __u64 *)value = (__u64)&hash; // refused
	__sync_fetch_and_add(value, (__u64)&stack); // refused
	return 0;
}
#endif

#ifdef CASE_numbers_made_of_pointers // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = count();
	__u32 low;

	if (!value)
		return 0;
	low = (__u32)(__u64)value;
	HIDE(low);
	*(volatile __u32 *)value = low; // refused
	*(volatile __u64 *)value = (low ^ 0x5555) * 3 + 5; // refused
	*(volatile __u64 *)value = low >> 12; // refused
	*(volatile __u64 *)value = DATA - (unsigned char *)value; // refused
	return 0;
}
#endif

#ifdef CASE_numbers_by_way_of_pointers // xdp tc
/* A number plus one pointer minus another tells the distance between both. */
#define BY_WAY_OF(one, other)                                                                      \
	({                                                                                         \
		__u64 _number = 5;                                                                 \
		asm volatile("%0 += %1\n%0 -= %2" : "+r"(_number) : "r"(one), "r"(other));         \
		_number;                                                                           \
	})

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = count(), *other = count(), stack = 0;
	unsigned char *data = DATA;

	if (!value || !other)
		return 0;
	*(volatile __u64 *)value = BY_WAY_OF(data, &stack); // refused
	*(volatile __u64 *)value = BY_WAY_OF(&stack, data); // refused
	*(volatile __u64 *)value = BY_WAY_OF(data, value); // refused
	*(volatile __u64 *)value = BY_WAY_OF(data, ctx); // refused
	*(volatile __u64 *)value = BY_WAY_OF(value, other); // refused
	*(volatile __u64 *)value = BY_WAY_OF(data, 4096L); // refused
	return 0;
}
#endif

#ifdef CASE_distance_between_buffers // tc
static NOINLINE int pull(CONTEXT *ctx)
{
	return bpf_skb_pull_data(ctx, 0);
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = count(), before = (__u64)DATA, after;

	HIDE(before);
	if (!value)
		return 0;
	bpf_skb_pull_data(ctx, 0);
	after = (__u64)DATA;
	HIDE(after);
	*(volatile __u64 *)value = after - before; // refused
	*(volatile __u32 *)value = (__u32)after - (__u32)before; // refused
	pull(ctx);
	before = (__u64)DATA;
	HIDE(before);
	*(volatile __u32 *)value = (__u32)before - (__u32)after; // refused
	return 0;
}
#endif

#ifdef CASE_counter_that_a_pointer_chooses // xdp tc
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[16]);
} table SEC(".maps");

PROGRAM int probe(CONTEXT *ctx)
{
	__u32 key = 0;
	__u64 *counters = bpf_map_lookup_elem(&table, &key), address = (__u64)ctx;

	asm volatile("" : "+r"(address));
	if (counters)
		counters[address >> 8 & 15]++; // refused
	return 0;
}
#endif

#ifdef CASE_part_of_a_pointer // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = count();
	volatile __u64 slot = (__u64)ctx;

	/* The kernel then takes the other half for a number. */
	((volatile __u32 *)&slot)[0] = 0;
	if (value)
		*(volatile __u32 *)value = ((volatile __u32 *)&slot)[1]; // refused
	return 0;
}
#endif

#ifdef CASE_address_of_an_iterator // xdp tc
struct numbers {
	__u64 opaque;
};

extern int bpf_iter_num_new(struct numbers *it, int start, int end) __attribute__((section(".ksyms")));
extern int *bpf_iter_num_next(struct numbers *it) __attribute__((section(".ksyms")));

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 *value = count();
	struct numbers numbers;
	int *number;

	bpf_iter_num_new(&numbers, 0, 16);
	number = bpf_iter_num_next(&numbers);
	HIDE(number);
	if (value)
		*value = (__u64)number; // refused
	return 0;
}
#endif

#ifdef CASE_pointer_as_an_entry // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u64 key = 5, value = (__u64)ctx;

	bpf_map_update_elem(&hash, &key, &value, BPF_ANY); // refused
	bpf_map_update_elem(&hash, &value, &key, BPF_ANY); // refused
	return 0;
}
#endif

#ifdef CASE_pointer_as_an_event // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	void *event[2] = { 0, ctx };

	bpf_ringbuf_output(&events, event, sizeof(event), 0); // refused
	__u64 *record = bpf_ringbuf_reserve(&events, 8, 0);

	if (record) {
		*record = (__u64)record; // refused
		bpf_ringbuf_submit(record, 0);
	}
	return 0;
}
#endif

#ifdef CASE_pointer_is_printed // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	bpf_printk("%llx", (__u64)ctx); // refused
	return 0;
}
#endif

#ifdef CASE_pointer_is_returned // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	return (int)(long)ctx; // refused
}
#endif

#ifdef CASE_entries_before_a_walk // xdp tc
static long walk(void *map, __u64 *key, __u64 *value, void *context)
{
	__u64 next = *key + 1;

	bpf_map_update_elem(&hash, &next, value, BPF_ANY); // refused
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 key = 0;

	bpf_map_update_elem(&hash, &key, &key, BPF_ANY);
	bpf_for_each_map_elem(&hash, walk, 0, 0);
	return 0;
}
#endif

#ifdef CASE_entries_before_a_walk_by_functions // xdp tc
static NOINLINE int add(void *map, __u64 key)
{
	return bpf_map_update_elem(&hash, &key, &key, BPF_ANY); // refused
}

static long inner(__u32 index, __u64 *key)
{
	return add(&hash, *key + index) == 7;
}

static long walk(void *map, __u64 *key, __u64 *value, void *context)
{
	__u64 next = *key;

	bpf_loop(2, inner, &next, 0);
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	bpf_for_each_map_elem(&hash, walk, 0, 0);
	return 0;
}
#endif

#ifdef CASE_timer_without_an_end // xdp tc
struct alarm {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct alarm);
} alarms SEC(".maps");

static int ring(void *map, __u32 *key, struct alarm *alarm)
{
	bpf_timer_start(&alarm->timer, 0, 0); // refused
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u32 key = 0;
	struct alarm *alarm = bpf_map_lookup_elem(&alarms, &key);

	if (!alarm)
		return 0;
	bpf_timer_init(&alarm->timer, &alarms, 1);
	bpf_timer_set_callback(&alarm->timer, ring);
	bpf_timer_start(&alarm->timer, 0, 0);
	return 0;
}
#endif

#ifdef CASE_long_rounds // xdp tc
static long inner(__u32 index, __u64 *sum)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < 1000; i++) {
		*sum += index ^ i;
		HIDE(i);
	}
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 sum = 0;

	bpf_loop(1 << 23, inner, &sum, 0);
	return sum == 7;
}
#endif

#ifdef CASE_rounds_with_functions_of_the_kernel // xdp tc
static long inner(__u32 index, __u64 *sum)
{
	bpf_printk("%d", index);
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 sum = 0;

	bpf_loop(1 << 23, inner, &sum, 0);
	return 0;
}
#endif

#ifdef CASE_loop_in_loops_that_the_verifier_follows // xdp tc
static long inner(__u32 index, __u64 *sum)
{
	*sum += index;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 sum = 0;

#pragma clang loop unroll(disable)
	for (int i = 0; i < 70; i++) {
#pragma clang loop unroll(disable)
		for (int j = 0; j < 70; j++)
			bpf_loop(1 << 13, inner, &sum, 0);
	}
	return sum == 7;
}
#endif

/* The size has a limit, but the limit is larger than the buffer, and a pointer is behind it. */
#ifdef CASE_more_bytes_than_a_buffer_has // xdp tc
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} shown SEC(".maps");

PROGRAM int probe(CONTEXT *ctx)
{
	struct {
		char part[32];
		CONTEXT *volatile pointer;
	} frame = {};
	__u32 size = ctx->data_end - ctx->data;

	frame.pointer = ctx;
	if (size > sizeof(frame))
		size = sizeof(frame);
	bpf_perf_event_output(ctx, &shown, BPF_F_CURRENT_CPU, &frame, size); // refused
	return 0;
}
#endif

/* The index has a limit, but the limit is larger than the buffer. */
#ifdef CASE_index_behind_a_buffer // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct {
		char part[32];
		CONTEXT *volatile pointer;
	} frame = {};
	__u32 key = 0, index = ctx->data_end - ctx->data;
	__u64 *value = bpf_map_lookup_elem(&counts, &key);
	volatile char *part = frame.part;

	frame.pointer = ctx;
	if (value && index < sizeof(frame))
		*value = part[index]; // refused
	return 0;
}
#endif

#ifdef CASE_slice_of_a_packet_that_moved // tc
/* A dynptr reads bytes of a packet from all buffers (Linux 6.4). */
#ifdef TC
extern int bpf_dynptr_from_skb(CONTEXT *ctx, __u64 flags, struct bpf_dynptr *dynptr) __attribute__((section(".ksyms")));
#define DYNPTR bpf_dynptr_from_skb
#else
extern int bpf_dynptr_from_xdp(CONTEXT *ctx, __u64 flags, struct bpf_dynptr *dynptr) __attribute__((section(".ksyms")));
#define DYNPTR bpf_dynptr_from_xdp
# endif
extern void *bpf_dynptr_slice(const struct bpf_dynptr *dynptr, __u32 offset, void *buffer, __u32 size)
	__attribute__((section(".ksyms"), weak));

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 header, *value = count();
	struct bpf_dynptr packet;
	void *read;

	if (!value || DYNPTR(ctx, 0, &packet))
		return 0;
	read = bpf_dynptr_slice(&packet, 0, &header, sizeof(header));
	if (!read)
		return 0;
	bpf_skb_pull_data(ctx, 0);
	*value = (long)read; // refused
	return 0;
}
#endif

#ifdef CASE_slice_of_a_dynptr_made_anew // xdp tc
/* A dynptr reads bytes of a packet from all buffers (Linux 6.4). */
#ifdef TC
extern int bpf_dynptr_from_skb(CONTEXT *ctx, __u64 flags, struct bpf_dynptr *dynptr) __attribute__((section(".ksyms")));
#define DYNPTR bpf_dynptr_from_skb
#else
extern int bpf_dynptr_from_xdp(CONTEXT *ctx, __u64 flags, struct bpf_dynptr *dynptr) __attribute__((section(".ksyms")));
#define DYNPTR bpf_dynptr_from_xdp
# endif
extern void *bpf_dynptr_slice(const struct bpf_dynptr *dynptr, __u32 offset, void *buffer, __u32 size)
	__attribute__((section(".ksyms"), weak));

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 header, *value = count();
	struct bpf_dynptr packet;
	void *read;

	if (!value || DYNPTR(ctx, 0, &packet))
		return 0;
	read = bpf_dynptr_slice(&packet, 0, &header, sizeof(header));
	if (!read || DYNPTR(ctx, 0, &packet))
		return 0;
	*value = (long)read; // refused
	return 0;
}
#endif

/* The kernel reads through some arguments of a format, such as %s. It shows all others. */
#ifdef CASE_print_of_a_pointer // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	char format[] = "%s %lx";

	bpf_trace_printk(format, sizeof(format), format, (long)ctx->data); // refused
	return 0;
}
#endif

#ifdef CASE_print_through_the_context // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	char format[] = "%s";

	bpf_trace_printk(format, sizeof(format), ctx); // refused
	return 0;
}
#endif

#ifdef CASE_print_through_a_map // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	char format[] = "%pI6";

	bpf_trace_printk(format, sizeof(format), &counts); // refused
	return 0;
}
#endif

#ifdef CASE_print_of_a_pointer_on_the_stack // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	char format[] = "%pI6";
	void *volatile kept[2] = { ctx, ctx };

	bpf_trace_printk(format, sizeof(format), (void *)kept); // refused
	return 0;
}
#endif

#ifdef CASE_print_with_a_format_that_changes // xdp tc
char format[] = "%s";

PROGRAM int probe(CONTEXT *ctx)
{
	format[1] = 'p';
	bpf_trace_printk(format, sizeof(format), (long)ctx->data); // refused
	return 0;
}
#endif

#ifdef CASE_print_with_one_of_two_formats // xdp tc
static const char text[] = "%s", number[] = "%p";

PROGRAM int probe(CONTEXT *ctx)
{
	const char *format = bpf_get_prandom_u32() & 1 ? text : number;

	bpf_trace_printk(format, sizeof(text), (long)ctx->data); // refused
	return 0;
}
#endif

#ifdef CASE_print_of_a_list_with_a_pointer // xdp tc
static const char format[] = "%pI4 %pI4 %pI4 %d";

PROGRAM int probe(CONTEXT *ctx)
{
	__u32 address = 0;
	__u64 list[4] = { (long)&address, (long)&address, (long)&address, (long)&address };

	bpf_trace_vprintk(format, sizeof(format), list, sizeof(list)); // refused
	return 0;
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
