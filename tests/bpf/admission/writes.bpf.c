// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs that change packets. Each #ifdef is a case, and its comment has the hooks. The daemon loads them as
// enforcing probes. It refuses them as observing probes, for exactly the lines with "refused".
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#ifdef TC
#define CONTEXT struct __sk_buff
#define PROGRAM SEC("tc")
#else
#define CONTEXT struct xdp_md
#define PROGRAM SEC("xdp")
#endif

typedef unsigned char byte;
#define DATA ((byte *)(long)ctx->data)
#define END ((byte *)(long)ctx->data_end)
#define HIDE(x) asm volatile("" : "+r"(x))
#define NOINLINE __attribute__((noinline))

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* A dynptr reads bytes of a packet from all buffers (Linux 6.4). */
#ifdef TC
extern int bpf_dynptr_from_skb(CONTEXT *ctx, __u64 flags, struct bpf_dynptr *dynptr) __attribute__((section(".ksyms")));
#define DYNPTR bpf_dynptr_from_skb
#else
extern int bpf_dynptr_from_xdp(CONTEXT *ctx, __u64 flags, struct bpf_dynptr *dynptr) __attribute__((section(".ksyms")));
#define DYNPTR bpf_dynptr_from_xdp
#endif
extern void *bpf_dynptr_slice(const struct bpf_dynptr *dynptr, __u32 offset, void *buffer, __u32 size)
	__attribute__((section(".ksyms"), weak));
extern void *bpf_dynptr_slice_rdwr(const struct bpf_dynptr *dynptr, __u32 offset, void *buffer, __u32 size)
	__attribute__((section(".ksyms"), weak));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

struct cursor {
	byte *at;
	byte *end;
};

#ifdef CASE_direct // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	if (data + 14 > END)
		return 0;
	data[0] = 1; // refused
	return 0;
}
#endif

#ifdef CASE_alias // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA, *other = data;

	if (data + 14 > END)
		return 0;
	HIDE(other);
	other += 6;
	HIDE(other);
	other[1] ^= data[0]; // refused
	return 0;
}
#endif

#ifdef CASE_spilled // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *volatile slot = DATA;
	byte *data = slot;

	if (data + 14 > END)
		return 0;
	data[0] = 1; // refused
	return 0;
}
#endif

#ifdef CASE_checked_then_spilled // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;
	byte *volatile slots[4];

	if (data + 14 > END)
		return 0;
	slots[0] = slots[3] = 0;
	slots[2] = data + 2;
	bpf_get_prandom_u32();
	*(__u32 *)slots[2] = 1; // refused
	return 0;
}
#endif

#ifdef CASE_kept_over_a_call // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	if (data + 14 > END)
		return 0;
	__u32 number = bpf_get_prandom_u32();

	data[3] = number; // refused
	return 0;
}
#endif

#ifdef CASE_one_of_two // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;
	__u64 local = 0;
	byte *to = (byte *)&local;

	if (data + 14 > END)
		return 0;
	if (ctx->ingress_ifindex & 1)
		to = data;
	HIDE(to);
	*to = 1; // refused
	return local;
}
#endif

#ifdef CASE_in_one_branch // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&counts, &key);

	if (!value || data + 14 > END)
		return 0;
	if (*value == 1000000)
		data[13] = 8; // refused
	*value += 1;
	return 0;
}
#endif

#ifdef CASE_in_a_loop // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

#pragma clang loop unroll(disable)
	for (int i = 0; i < 20; i++) {
		if (data + 1 > END)
			break;
		HIDE(data);
		*data = i; // refused
		data += 2;
	}
	return 0;
}
#endif

#ifdef CASE_unrolled // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u32 *data = (__u32 *)DATA;

	if ((byte *)(data + 4) > END)
		return 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
		data[i] = ~data[i]; // refused
	return 0;
}
#endif

#ifdef CASE_copied_within // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	if (data + 14 > END)
		return 0;
	__builtin_memcpy(data, data + 6, 6); // refused
	return 0;
}
#endif

#ifdef CASE_variable_offset // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;
	__u64 offset = bpf_get_prandom_u32() & 15;

	data += offset;
	if (data + 4 > END)
		return 0;
	*(__u32 *)data = 0; // refused
	return 0;
}
#endif

#ifdef CASE_number_plus_pointer // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;
	__u64 sum = 3;

	if (data + 14 > END)
		return 0;
	asm volatile("%0 += %1" : "+r"(sum) : "r"(data));
	*(byte *)sum = 1; // refused
	return 0;
}
#endif

#ifdef CASE_pointer_less_number // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	if (data + 14 > END)
		return 0;
	data += 10;
	asm volatile("%0 -= 4" : "+r"(data));
	*data = 1; // refused
	return 0;
}
#endif

#ifdef CASE_subprogram // xdp tc
static NOINLINE int poke(byte *at)
{
	*at = 1; // refused
	return *at;
}

PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	return data + 14 > END ? 0 : poke(data);
}
#endif

#ifdef CASE_subprogram_of_subprogram // xdp tc
static NOINLINE int poke(byte *at, int number)
{
	at[2] = number; // refused
	return number;
}

static NOINLINE int twice(byte *at, int number)
{
	HIDE(number);
	return poke(at, number) + poke(at + 1, number + 1);
}

PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	return data + 14 > END ? 0 : twice(data, 7);
}
#endif

#ifdef CASE_global_subprogram // xdp tc
NOINLINE int poke(__u64 *at)
{
	if (!at)
		return 0;
	*at = 1; // refused
	return 1;
}

PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	return data + 14 > END ? 0 : poke((__u64 *)data);
}
#endif

#ifdef CASE_subprogram_with_context // xdp tc
static NOINLINE int poke(CONTEXT *ctx)
{
	byte *data = DATA;

	if (data + 14 > END)
		return 0;
	*data = 1; // refused
	return 1;
}

PROGRAM int probe(CONTEXT *ctx)
{
	return poke(ctx);
}
#endif

#ifdef CASE_returned // xdp tc
static NOINLINE byte *start(CONTEXT *ctx)
{
	byte *data = DATA;

	HIDE(data);
	return data;
}

PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = start(ctx);

	if (data + 14 > END)
		return 0;
	*data = 1; // refused
	return 0;
}
#endif

#ifdef CASE_given_back_in_memory // xdp tc
static NOINLINE int find(CONTEXT *ctx, struct cursor *found)
{
	found->at = DATA;
	found->end = END;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct cursor cursor = {};

	find(ctx, &cursor);
	if (cursor.at + 14 > cursor.end)
		return 0;
	*cursor.at = 1; // refused
	return 0;
}
#endif

#ifdef CASE_taken_from_memory // xdp tc
static NOINLINE int poke(struct cursor *cursor)
{
	if (cursor->at + 14 > cursor->end)
		return 0;
	*cursor->at = 1; // refused
	cursor->at += 1;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct cursor cursor = { DATA, END };

	return poke(&cursor) + poke(&cursor);
}
#endif

#ifdef CASE_called_through_a_table // xdp tc
int change(CONTEXT *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} programs SEC(".maps") = {
	.values = { [1] = (void *)&change },
};

PROGRAM int probe(CONTEXT *ctx)
{
	bpf_tail_call(ctx, &programs, bpf_get_prandom_u32() & 1);
	return 0;
}

PROGRAM int change(CONTEXT *ctx)
{
	byte *data = DATA;

	if (data + 1 <= END)
		data[0] = 1; // refused
	return 0;
}
#endif

#ifdef CASE_in_a_loop_over_numbers // xdp tc
struct numbers {
	__u64 opaque;
};

extern int bpf_iter_num_new(struct numbers *it, int start, int end) __attribute__((section(".ksyms")));
extern int *bpf_iter_num_next(struct numbers *it) __attribute__((section(".ksyms")));

PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;
	struct numbers numbers;
	int *number;

	if (data + 16 > END)
		return 0;
	bpf_iter_num_new(&numbers, 0, 16);
	while ((number = bpf_iter_num_next(&numbers)))
		data[*number & 15] = 1; // refused
	return 0;
}
#endif

#ifdef CASE_called_back // xdp tc
static long poke(__u32 index, struct cursor *cursor)
{
	byte *at = cursor->at;

	if (at + 14 > cursor->end)
		return 1;
	at[1] = index; // refused
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct cursor cursor = { DATA, END };

	bpf_loop(3, poke, &cursor, 0);
	return 0;
}
#endif

#ifdef CASE_called_back_for_entries // xdp tc
static long poke(void *map, __u32 *key, __u64 *value, struct cursor *cursor)
{
	byte *at = cursor->at;

	if (at + 14 > cursor->end)
		return 1;
	at[1] = *value; // refused
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct cursor cursor = { DATA, END };

	bpf_for_each_map_elem(&counts, poke, &cursor, 0);
	return 0;
}
#endif

#ifdef CASE_put_down_by_a_callback // xdp tc
struct scene {
	CONTEXT *ctx;
	byte *at;
};

static long find(__u32 index, struct scene *scene)
{
	scene->at = (byte *)(long)scene->ctx->data;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct scene scene = { ctx, DATA };

	bpf_loop(1, find, &scene, 0);
	byte *at = scene.at;

	if (at + 14 > END)
		return 0;
	*at = 1; // refused
	return 0;
}
#endif

/* The kernel also refuses it, but earlier versions allowed some functions that write. */
#ifdef CASE_looked_up_into_the_packet // xdp tc kernel
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	if (data + sizeof(struct bpf_fib_lookup) > END)
		return 0;
	bpf_fib_lookup(ctx, (void *)data, sizeof(struct bpf_fib_lookup), 0); // refused
	return 0;
}
#endif

#ifdef CASE_metadata // xdp
PROGRAM int probe(CONTEXT *ctx)
{
	bpf_xdp_adjust_meta(ctx, -4); // refused
	byte *meta = (byte *)(long)ctx->data_meta;

	if (meta + 4 > DATA)
		return 0;
	*(__u32 *)meta = 1; // refused
	return 0;
}
#endif

#ifdef CASE_adjust_head // xdp
PROGRAM int probe(CONTEXT *ctx)
{
	bpf_xdp_adjust_head(ctx, 4); // refused
	return 0;
}
#endif

#ifdef CASE_adjust_tail // xdp
PROGRAM int probe(CONTEXT *ctx)
{
	bpf_xdp_adjust_tail(ctx, -1); // refused
	return 0;
}
#endif

#ifdef CASE_store_bytes // xdp
PROGRAM int probe(CONTEXT *ctx)
{
	__u32 number = 1;

	bpf_xdp_store_bytes(ctx, 0, &number, sizeof(number)); // refused
	return 0;
}
#endif

#ifdef CASE_redirect // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	return bpf_redirect(1, 0); // refused
}
#endif

#ifdef CASE_metadata_tc // tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *meta = (byte *)(long)ctx->data_meta;

	if (meta + 4 > DATA)
		return 0;
	*(__u32 *)meta = 1; // refused
	return 0;
}
#endif

#ifdef CASE_fields // tc
#define SET(field) (*(volatile __typeof__(ctx->field) *)&ctx->field = 1)
PROGRAM int probe(CONTEXT *ctx)
{
	SET(mark);	    // refused
	SET(priority);	    // refused
	SET(tc_index);	    // refused
	SET(tc_classid);    // refused
	SET(queue_mapping); // refused
	SET(cb[0]);	    // refused
	SET(cb[4]);	    // refused
	SET(tstamp);	    // refused
	return 0;
}
#endif

/* A read beyond the packet's end ends the function. Code after the read does not run. */
#ifdef CASE_given_back_before_a_read // tc
__u64 load_byte(void *ctx, __u64 offset) asm("llvm.bpf.load.byte");

static NOINLINE __u64 find(CONTEXT *ctx, byte **found, byte *data, byte *other)
{
	*found = data;
	asm volatile("" ::: "memory");
	__u64 number = load_byte(ctx, 60000);

	asm volatile("" ::"r"(number) : "memory");
	*found = other;
	return number;
}

PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA, *found;
	__u32 key = 0;
	byte *value = bpf_map_lookup_elem(&counts, &key);

	if (!value || data + 14 > END)
		return 0;
	found = value;
	__u64 number = find(ctx, &found, data, value);

	*found = number; // refused
	return 0;
}
#endif

#ifdef CASE_field_through_the_stack // tc
PROGRAM int probe(CONTEXT *ctx)
{
	CONTEXT *volatile slot = ctx;

	slot->mark = 1; // refused
	return 0;
}
#endif

#ifdef CASE_field_in_a_subprogram // tc
static NOINLINE int mark(CONTEXT *ctx, __u32 number)
{
	ctx->mark = number; // refused
	return number;
}

PROGRAM int probe(CONTEXT *ctx)
{
	return mark(ctx, ctx->len);
}
#endif

#ifdef CASE_field_in_a_callback // tc
static long mark(__u32 index, CONTEXT **ctx)
{
	(*ctx)->priority = index; // refused
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	bpf_loop(2, mark, &ctx, 0);
	return 0;
}
#endif

#ifdef CASE_helpers_on_bytes // tc
PROGRAM int probe(CONTEXT *ctx)
{
	__u32 number = 1;

	bpf_skb_store_bytes(ctx, 0, &number, sizeof(number), 0); // refused
	bpf_l3_csum_replace(ctx, 24, 0, 1, 2);			 // refused
	bpf_l4_csum_replace(ctx, 36, 0, 1, 2);			 // refused
	bpf_csum_update(ctx, 1);				 // refused
	bpf_csum_level(ctx, BPF_CSUM_LEVEL_INC);		 // refused
	bpf_skb_ecn_set_ce(ctx);				 // refused
	return 0;
}
#endif

#ifdef CASE_helpers_on_size // tc
PROGRAM int probe(CONTEXT *ctx)
{
	bpf_skb_vlan_push(ctx, 0x0081, 7);			     // refused
	bpf_skb_vlan_pop(ctx);					     // refused
	bpf_skb_change_proto(ctx, 0xdd86, 0);			     // refused
	bpf_skb_change_head(ctx, 14, 0);			     // refused
	bpf_skb_change_tail(ctx, 60, 0);			     // refused
	bpf_skb_adjust_room(ctx, 4, BPF_ADJ_ROOM_MAC, 0);	     // refused
	return 0;
}
#endif

#ifdef CASE_helpers_on_metadata // tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct bpf_tunnel_key key = {};
	__u64 option = 0;

	bpf_skb_change_type(ctx, 3);				     // refused
	bpf_skb_set_tunnel_key(ctx, &key, sizeof(key), 0);	     // refused
	bpf_skb_set_tunnel_opt(ctx, &option, sizeof(option));	     // refused
	bpf_skb_set_tstamp(ctx, 1, BPF_SKB_TSTAMP_DELIVERY_MONO);    // refused
	bpf_get_hash_recalc(ctx);				     // refused
	bpf_set_hash(ctx, 1);					     // refused
	bpf_set_hash_invalid(ctx);				     // refused
	return 0;
}
#endif

#ifdef CASE_helpers_on_fate // tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct bpf_sock_tuple tuple = {};

	bpf_clone_redirect(ctx, 1, 0);				     // refused
	bpf_redirect_neigh(1, 0, 0, 0);				     // refused
	bpf_redirect_peer(1, 0);				     // refused
	struct bpf_sock *sk = bpf_sk_lookup_udp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);

	if (sk) {
		bpf_sk_assign(ctx, sk, 0); // refused
		bpf_sk_release(sk);
	}
	return 0;
}
#endif

#ifdef CASE_slice_to_write // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14] = {};
	struct bpf_dynptr packet;
	byte *written;

	if (DYNPTR(ctx, 0, &packet))
		return 0;
	written = bpf_dynptr_slice_rdwr(&packet, 0, header, sizeof(header)); // refused
	if (written)
		written[0] = 1; // refused
	return 0;
}
#endif

#ifdef CASE_slice_to_read // xdp tc kernel
PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14] = {};
	struct bpf_dynptr packet;
	byte *written;

	if (DYNPTR(ctx, 0, &packet))
		return 0;
	written = bpf_dynptr_slice(&packet, 0, header, sizeof(header));
	if (written)
		written[0] = 1; // refused
	return 0;
}
#endif

#ifdef CASE_dynptr_to_write // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14] = {};
	struct bpf_dynptr packet;

	if (DYNPTR(ctx, 0, &packet))
		return 0;
	bpf_dynptr_write(&packet, 0, header, sizeof(header), 0); // refused
	return 0;
}
#endif

#ifdef CASE_one_dynptr_of_two_to_write // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14] = {};
	struct bpf_dynptr packet, record, *one = &record;

	if (DYNPTR(ctx, 0, &packet))
		return 0;
	bpf_ringbuf_reserve_dynptr(&records, sizeof(header), 0, &record);
	bpf_dynptr_write(&record, 0, header, sizeof(header), 0);
	if (bpf_get_prandom_u32() & 1)
		one = &packet;
	HIDE(one);
	bpf_dynptr_write(one, 0, header, sizeof(header), 0); // refused
	bpf_ringbuf_submit_dynptr(&record, 0);
	return 0;
}
#endif

#ifdef CASE_dynptr_in_place_of_another_to_write // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14] = {};
	struct bpf_dynptr either;

	bpf_ringbuf_reserve_dynptr(&records, sizeof(header), 0, &either);
	bpf_dynptr_write(&either, 0, header, sizeof(header), 0);
	bpf_ringbuf_submit_dynptr(&either, 0);
	if (DYNPTR(ctx, 0, &either))
		return 0;
	bpf_dynptr_write(&either, 0, header, sizeof(header), 0); // refused
	return 0;
}
#endif

#ifdef CASE_dynptr_of_the_caller_to_write // xdp tc
static NOINLINE int change(struct bpf_dynptr *dynptr)
{
	byte header[14] = {};

	return bpf_dynptr_write(dynptr, 0, header, sizeof(header), 0); // refused
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct bpf_dynptr packet, record;

	bpf_ringbuf_reserve_dynptr(&records, 14, 0, &record);
	change(&record);
	bpf_ringbuf_submit_dynptr(&record, 0);
	if (DYNPTR(ctx, 0, &packet))
		return 0;
	change(&packet);
	return 0;
}
#endif

#ifdef CASE_dynptr_of_the_callee_to_write // xdp tc
static NOINLINE int make(CONTEXT *ctx, struct bpf_dynptr *dynptr)
{
	return DYNPTR(ctx, 0, dynptr);
}

PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14] = {};
	struct bpf_dynptr packet;

	if (make(ctx, &packet))
		return 0;
	bpf_dynptr_write(&packet, 0, header, sizeof(header), 0); // refused
	return 0;
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
