// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs that only read packets, although they seem to write. Each #ifdef is a case, and its comment has the hooks.
// The daemon loads each.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
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

struct value {
	__u64 packets;
	__u64 bytes[15];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct value);
} values SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, byte[14]);
	__type(value, __u64);
} headers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

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

struct cursor {
	byte *at;
	byte *end;
	struct value *value;
};

static __always_inline struct value *first(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&values, &key);
}

#ifdef CASE_copy_is_changed // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA, copy[14];
	__u64 one = 1;

	if (data + 14 > END)
		return 0;
	__builtin_memcpy(copy, data, 14);
	copy[0] ^= 1;
	for (int i = 6; i < 12; i++)
		copy[i] = 0;
	bpf_map_update_elem(&headers, copy, &one, BPF_ANY);
	return 0;
}
#endif

#ifdef CASE_packet_is_key_and_value // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	if (data + 22 > END)
		return 0;
	if (!bpf_map_lookup_elem(&headers, data))
		bpf_map_update_elem(&headers, data, data + 14, BPF_ANY);
	else
		bpf_map_delete_elem(&headers, data);
	return 0;
}
#endif

#ifdef CASE_length_is_an_index // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	__u64 length = END - DATA;

	if (!value)
		return 0;
	value->bytes[length & 7] += length;
	return 0;
}
#endif

#ifdef CASE_byte_is_an_index // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte *data = DATA;

	if (!value || data + 14 > END)
		return 0;
	value->bytes[data[13] & 7] += data[12];
	return 0;
}
#endif

#ifdef CASE_register_is_used_again // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte *at = DATA;

	if (!value || at + 14 > END)
		return 0;
	__u64 number = at[3];

	HIDE(number);
	asm volatile("%0 = %1" : "+r"(at) : "r"(value));
	*(__u64 *)at = number;
	return 0;
}
#endif

#ifdef CASE_slot_is_used_again // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte *volatile slot = DATA;
	byte *at = slot;

	if (!value || at + 14 > END)
		return 0;
	__u64 number = at[3];

	slot = (byte *)value;
	*(__u64 *)slot = number;
	return 0;
}
#endif

#ifdef CASE_one_copies_for_all // xdp tc
static NOINLINE int copy(byte *to, const byte *from)
{
	for (int i = 0; i < 8; i++)
		to[i] = from[i];
	return to[0];
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte *data = DATA, local[8];

	if (!value || data + 14 > END)
		return 0;
	return copy(local, data) + copy((byte *)value, local) + copy((byte *)value, data + 6);
}
#endif

#ifdef CASE_one_function_reads_or_writes // xdp tc
static NOINLINE int access(byte *at, int writes)
{
	if (writes)
		*at = 1;
	return *at;
}

PROGRAM int probe(CONTEXT *ctx)
{
	byte local[8] = {};

	return access(local, 1) + local[0];
}
#endif

#ifdef CASE_cursor // xdp tc
static NOINLINE int skip(struct cursor *cursor, __u32 bytes)
{
	byte *at = cursor->at;

	if (bytes > 100 || at + bytes > cursor->end)
		return -1;
	cursor->at = at + bytes;
	cursor->value->packets++;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct cursor cursor = { DATA, END, first() };

	if (!cursor.value || skip(&cursor, 14))
		return 0;
	if (cursor.at + 4 > cursor.end)
		return 0;
	cursor.value->bytes[0] += cursor.at[2];
	return 0;
}
#endif

#ifdef CASE_bytes_are_added_up // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte *data = DATA;
	__u64 sums[4] = {};

	if (!value)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < 32; i++) {
		if (data + i + 1 > END)
			break;
		sums[i & 3] += data[i];
	}
	for (int i = 0; i < 4; i++)
		__sync_fetch_and_add(&value->bytes[i], sums[i]);
	return 0;
}
#endif

#ifdef CASE_lengths // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte *data = DATA, *at = data;

	if (!value || at + 64 > END)
		return 0;
	value->bytes[0] = END - DATA;
	value->bytes[1] = ctx->data_end - ctx->data;
	value->bytes[2] = (__u16)(ctx->data_end - ctx->data - 14);
	at += (data[0] & 15) + 4;
	value->bytes[3] = at - data;
	value->bytes[4] = at > data + 8;
	value->packets = value->bytes[0] + 1;
	return value->bytes[3];
}
#endif

#ifdef CASE_number_by_way_of_the_packet // xdp tc
/* Compilers keep a length as a pointer to its end, and compare the start with 0 again. */
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte *data = DATA;
	__u64 length;

	if (!value || data + 64 > END)
		return 0;
	length = data[0];
	asm volatile("if %[data] == 0 goto +1\n%[length] += 40\n%[length] &= 16777215\n"
		     "%[length] += %[data]\n%[length] -= %[data]\n%[length] <<= 32\n%[length] >>= 32"
		     : [length] "+r"(length)
		     : [data] "r"(data));
	value->bytes[0] = length;
	return 0;
}
#endif

#ifdef CASE_buffers_on_the_stack // xdp tc
struct padded {
	byte kind;
	__u32 length;
	__u16 port;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct padded);
	__type(value, struct padded);
} padded_keys SEC(".maps");

static NOINLINE int fill(byte *into)
{
	for (int i = 0; i < 14; i++)
		into[i] = i;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA, *volatile beside = data;
	struct padded key;
	__u64 one = 1;
	byte header[14], other[14];

	if (data + 14 > END)
		return 0;
	key.kind = data[0];
	key.length = END - data;
	key.port = data[1];
	bpf_map_update_elem(&padded_keys, &key, &key, BPF_ANY);
	/* Four writes fill the header. */
	__builtin_memcpy(header, data, 6);
	__builtin_memcpy(header + 6, data + 6, 6);
	header[12] = data[12];
	header[13] = data[13];
	bpf_map_update_elem(&headers, header, &one, BPF_ANY);
	/* A pointer to one of two places in an array. */
	byte *end = data[0] & 1 ? header : header + 8;

	*end = 0;
	bpf_map_update_elem(&headers, header, &one, BPF_ANY);
	fill(other);
	bpf_map_update_elem(&headers, other, &one, BPF_ANY);
	return beside == data;
}
#endif

#ifdef CASE_bytes_of_the_packet_on_the_stack // tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14], other[14];
	__u64 one = 1;

	/* Beyond the packet, the kernel writes zeros. */
	bpf_skb_load_bytes(ctx, 100000, header, sizeof(header));
	bpf_map_update_elem(&headers, header, &one, BPF_ANY);
	if (bpf_skb_load_bytes_relative(ctx, 0, other, sizeof(other), BPF_HDR_START_NET))
		return 0;
	bpf_map_update_elem(&headers, other, &one, BPF_ANY);
	return 0;
}
#endif

#ifdef CASE_bytes_of_all_buffers // xdp
PROGRAM int probe(CONTEXT *ctx)
{
	byte one[14], two[14], three[14];
	__u64 count = 1;

	if (!bpf_xdp_load_bytes(ctx, 0, one, sizeof(one)))
		bpf_map_update_elem(&headers, one, &count, BPF_ANY);
	int failure = bpf_xdp_load_bytes(ctx, 1, two, sizeof(two));

	if (failure < 0)
		return 0;
	bpf_map_update_elem(&headers, two, &count, BPF_ANY);
	/* Ignores the result. */
	bpf_xdp_load_bytes(ctx, 2, three, sizeof(three));
	bpf_map_update_elem(&headers, three, &count, BPF_ANY);
	return 0;
}
#endif

#ifdef CASE_first_of_a_queue // xdp tc
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 10);
	__type(value, __u64);
} waiting SEC(".maps");

PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	__u64 number;

	if (!value)
		return 0;
	if (!bpf_map_peek_elem(&waiting, &number))
		value->bytes[0] = number;
	if (!bpf_map_pop_elem(&waiting, &number))
		value->bytes[1] = number;
	return 0;
}
#endif

#ifdef CASE_entries_are_walked_through // xdp tc
static long age(void *map, byte *key, __u64 *value, __u64 *now)
{
	__u64 one = 1;
	__u32 index = 3;
	struct value zero = {};

	if (*value + 5 < *now)
		bpf_map_delete_elem(map, key);
	else
		*value += 1;
	bpf_map_update_elem(&values, &index, &zero, BPF_ANY);
	return one == 2;
}

static long again(void *map, __u32 *key, struct value *value, __u64 *now)
{
	struct value copy = *value;

	copy.packets = *now;
	bpf_map_update_elem(&values, key, &copy, BPF_ANY);
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_for_each_map_elem(&headers, age, &now, 0);
	bpf_for_each_map_elem(&values, again, &now, 0);
	return 0;
}
#endif

#ifdef CASE_one_long_loop // xdp tc
static long find(__u32 index, struct value **value)
{
	__u32 key = index & 3;
	struct value *found = bpf_map_lookup_elem(&values, &key);

	if (found)
		found->bytes[index & 7] += (*value)->packets;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();

	if (value)
		bpf_loop(value->packets, find, &value, 0);
	return 0;
}
#endif

#ifdef CASE_called_back // xdp tc
static long count(__u32 index, struct cursor *cursor)
{
	byte *at = cursor->at;

	if (at + 14 > cursor->end)
		return 1;
	cursor->value->bytes[index & 7] += at[3];
	return 0;
}

static long clear(__u32 index, struct value **value)
{
	(*value)->bytes[7] = 0;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	struct cursor cursor = { DATA, END, value };

	if (!value)
		return 0;
	bpf_loop(8, count, &cursor, 0);
	bpf_loop(1, clear, &value, 0);
	return 0;
}
#endif

#ifdef CASE_loops_in_loops // xdp tc
static long add(__u32 index, struct value **value)
{
	(*value)->bytes[index & 7]++;
	return 0;
}

static long rows(__u32 index, struct value **value)
{
	bpf_loop(64, add, value, 0);
	return 0;
}

static long entries(void *map, __u32 *key, struct value *value, CONTEXT **ctx)
{
	__u64 length = (*ctx)->data_end - (*ctx)->data;

	bpf_loop(length > 1500 ? 1500 : length, add, &value, 0);
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte *data = DATA;

	if (!value || data + 14 > END)
		return 0;
	bpf_loop(64, rows, &value, 0);
	bpf_loop(data[3], rows, &value, 0);
	bpf_for_each_map_elem(&values, entries, &ctx, 0);
	/* One loop may take as long as the kernel allows. */
	bpf_loop(value->packets, add, &value, 0);
#pragma clang loop unroll(disable)
	for (int i = 0; i < 4; i++)
		bpf_loop(data[i] & 63, add, &value, 0);
	return 0;
}
#endif

#ifdef CASE_tables // xdp tc
static const byte of32[32] = { 1, 5, 9, 2, 0, 7, [17] = 3, [31] = 8 };
static const __u32 of16[4] = { 70000, 5, 80000, 2 };
static const __u64 of8[1] = { 1ull << 40 };

PROGRAM int probe(CONTEXT *ctx)
{
	static const byte of4[4] = { 9, 8, 7, 6 };
	struct value *value = first();
	byte *data = DATA;

	if (!value || data + 14 > END)
		return 0;
	value->bytes[of4[data[0] & 3] & 7] += of32[data[1] & 31] + of16[data[2] & 3] + of8[data[3] & 0];
	return 0;
}
#endif

#ifdef CASE_called_back_for_entries // xdp tc
static long add(void *map, __u32 *key, struct value *value, __u64 *sum)
{
	*sum += value->packets;
	value->bytes[1] = *sum;
	return 0;
}

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 sum = 0;

	bpf_for_each_map_elem(&values, add, &sum, 0);
	return sum;
}
#endif

#ifdef CASE_sent_as_events // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	if (data + 14 > END)
		return 0;
	byte *event = bpf_ringbuf_reserve(&events, 14, 0);

	if (event) {
		__builtin_memcpy(event, data, 14);
		event[0] = 0;
		bpf_ringbuf_submit(event, 0);
	}
	__u64 header[2] = {};

	__builtin_memcpy(header, data, 14);
	bpf_ringbuf_output(&events, header, sizeof(header), 0);
	return 0;
}
#endif

#ifdef CASE_sums_and_routes // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	struct bpf_fib_lookup route = { .family = 2, .ifindex = ctx->ingress_ifindex };
	byte *data = DATA;
	struct iphdr *ip = (void *)(data + sizeof(struct ethhdr));

	if (!value || (byte *)(ip + 1) > END)
		return 0;
	route.ipv4_dst = ip->daddr;
	value->bytes[0] += bpf_fib_lookup(ctx, &route, sizeof(route), 0) == 0;
	value->bytes[1] = bpf_csum_diff(0, 0, (__be32 *)ip, sizeof(*ip), 0);
	return 0;
}
#endif

#ifdef CASE_loaded_bytes // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte local[16] = {};

	if (!value)
		return 0;
#ifdef TC
	bpf_skb_load_bytes(ctx, 0, local, sizeof(local));
	bpf_skb_load_bytes(ctx, 0, value->bytes, 8);
#else
	bpf_xdp_load_bytes(ctx, 0, local, sizeof(local));
	bpf_xdp_load_bytes(ctx, 0, value->bytes, 8);
	value->bytes[2] += bpf_xdp_get_buff_len(ctx);
#endif
	local[0]++;
	value->packets += local[0];
	return 0;
}
#endif

#ifdef CASE_exchanged // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	byte *data = DATA;

	if (!value || data + 14 > END)
		return 0;
	__u64 old = __sync_lock_test_and_set(&value->packets, data[0]);

	__sync_val_compare_and_swap(&value->bytes[0], old, data[1]);
	__sync_fetch_and_or(&value->bytes[1], old);
	return 0;
}
#endif

#ifdef CASE_fields // tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();

	if (!value)
		return 0;
	value->bytes[0] += ctx->len;
	value->bytes[1] = ctx->mark + ctx->priority + ctx->cb[0] + ctx->hash + ctx->queue_mapping;
	value->bytes[ctx->cb[1] & 7] = ctx->tstamp;
	value->bytes[ctx->ingress_ifindex & 7] = ctx->protocol;
	return 0;
}
#endif

#ifdef CASE_pulled_in // tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();

	bpf_skb_pull_data(ctx, 34);
	struct iphdr *ip = (void *)(DATA + sizeof(struct ethhdr));

	if (!value || (byte *)(ip + 1) > END)
		return 0;
	value->bytes[0] += ip->ttl;
	return 0;
}
#endif

#ifdef CASE_length_from_before // tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	__u64 data = (__u64)DATA, end = (__u64)END;

	HIDE(data);
	HIDE(end);
	bpf_skb_pull_data(ctx, 34);
	if (value)
		value->bytes[0] = (__u32)end - (__u32)data;
	return 0;
}
#endif

#ifdef CASE_socket // tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk = ctx->sk;

	if (!value)
		return 0;
	sk = sk ? bpf_sk_fullsock(sk) : 0;
	if (sk)
		value->bytes[0] = sk->mark;
	sk = bpf_sk_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	if (sk) {
		value->bytes[1] = sk->state;
		bpf_sk_release(sk);
	}
	return 0;
}
#endif

#ifdef CASE_socket_of_tcp // tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();
	struct bpf_sock *sk = ctx->sk;

	if (!value || !sk)
		return 0;
	sk = bpf_sk_fullsock(sk);
	struct bpf_tcp_sock *tcp = sk ? bpf_tcp_sock(sk) : 0;

	if (tcp)
		value->bytes[0] = tcp->snd_cwnd + tcp->srtt_us;
	value->bytes[1] = sk != 0;
	return 0;
}
#endif

#ifdef CASE_without_a_pointer // tc
unsigned long long load_byte(void *skb, unsigned long long offset) asm("llvm.bpf.load.byte");

PROGRAM int probe(CONTEXT *ctx)
{
	struct value *value = first();

	if (value)
		value->bytes[0] += load_byte(ctx, 14);
	return 0;
}
#endif

#ifdef CASE_locked // xdp tc
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct { struct bpf_spin_lock lock; __u64 packets; });
} guarded SEC(".maps");

PROGRAM int probe(CONTEXT *ctx)
{
	__u32 key = 0;
	struct { struct bpf_spin_lock lock; __u64 packets; } *value = bpf_map_lookup_elem(&guarded, &key);

	if (!value)
		return 0;
	bpf_spin_lock(&value->lock);
	value->packets++;
	bpf_spin_unlock(&value->lock);
	return 0;
}
#endif

#ifdef CASE_members_and_queues // xdp tc
struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__uint(max_entries, 100);
	__type(value, __u64);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 10);
	__type(value, __u64);
} queue SEC(".maps");

PROGRAM int probe(CONTEXT *ctx)
{
	__u64 number = ctx->ingress_ifindex;

	bpf_map_push_elem(&members, &number, 0);
	if (!bpf_map_peek_elem(&members, &number))
		bpf_map_push_elem(&queue, &number, BPF_EXIST);
	bpf_map_pop_elem(&queue, &number);
	return number;
}
#endif

#ifdef CASE_variables // xdp tc
__u64 packets, table[8];
static const __u64 limits[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

PROGRAM int probe(CONTEXT *ctx)
{
	byte *data = DATA;

	packets++;
	if (data + 14 > END)
		return 0;
	table[data[0] & 7] += limits[data[1] & 7];
	return 0;
}
#endif

#ifdef CASE_traced // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	bpf_printk("a packet from interface %d", ctx->ingress_ifindex);
	return bpf_ktime_get_ns() + bpf_get_smp_processor_id() + bpf_jiffies64();
}
#endif

#ifdef CASE_drops_what_it_sees // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	return 1;
}
#endif

#ifdef CASE_dynptr // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14], payload[32];
	struct bpf_dynptr packet;
	byte *read;
	__u32 key = 1;
	struct value *value = bpf_map_lookup_elem(&values, &key);

	if (!value || DYNPTR(ctx, 0, &packet))
		return 0;
	read = bpf_dynptr_slice(&packet, 0, header, sizeof(header));
	if (!read)
		return 0;
	value->packets += read[12] << 8 | read[13];
	if (!bpf_dynptr_read(payload, sizeof(payload), &packet, 14, 0))
		value->bytes[0] += payload[0];
	return 0;
}
#endif

#ifdef CASE_dynptr_of_a_record // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14];
	struct bpf_dynptr packet, record;

	if (DYNPTR(ctx, 0, &packet) || bpf_dynptr_read(header, sizeof(header), &packet, 0, 0))
		return 0;
	bpf_ringbuf_reserve_dynptr(&events, sizeof(header), 0, &record);
	bpf_dynptr_write(&record, 0, header, sizeof(header), 0);
	bpf_ringbuf_submit_dynptr(&record, 0);
	return 0;
}
#endif

#ifdef CASE_dynptr_in_place_of_the_packets // xdp tc
static NOINLINE int copy(struct bpf_dynptr *dynptr, byte *header)
{
	return bpf_dynptr_write(dynptr, 0, header, 14, 0);
}

PROGRAM int probe(CONTEXT *ctx)
{
	byte header[14];
	struct bpf_dynptr either;

	if (DYNPTR(ctx, 0, &either) || bpf_dynptr_read(header, sizeof(header), &either, 0, 0))
		return 0;
	bpf_ringbuf_reserve_dynptr(&events, sizeof(header), 0, &either);
	copy(&either, header);
	bpf_ringbuf_submit_dynptr(&either, 0);
	return 0;
}
#endif

/* A pointer is behind the buffer, and neither the size nor the index reaches it. */
#ifdef CASE_part_of_a_buffer // xdp tc
PROGRAM int probe(CONTEXT *ctx)
{
	struct {
		byte part[32];
		CONTEXT *volatile pointer;
	} frame = {};
	__u32 key = 0, size;
	struct value *value = bpf_map_lookup_elem(&values, &key);
	volatile byte *part = frame.part;

	frame.pointer = ctx;
	if (!value)
		return 0;
	size = value->bytes[0];
	if (size > sizeof(frame.part))
		size = sizeof(frame.part);
	bpf_ringbuf_output(&events, frame.part, size, 0);
	value->packets += part[value->bytes[1] % sizeof(frame.part)];
	return 0;
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
