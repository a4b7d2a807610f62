/* Tables. Each table becomes a map in libbpf's form, with the table's name as symbol, and a constant struct of
 * functions with the table's name in C. The compiler inlines the functions and removes the struct. */
#ifndef TWINPROBE_BCC_TABLES_H
#define TWINPROBE_BCC_TABLES_H

/* TBCC_IF(1)(a, b) is a, TBCC_IF(0)(a, b) is b. TBCC_IS_MARK(x) is 1 if x is a macro for a mark (~, 1,), else 0. */
#define TBCC_IF(c) TBCC_PASTE(TBCC_IF_, c)
#define TBCC_IF_1(a, b) a
#define TBCC_IF_0(a, b) b
#define TBCC_PASTE(a, b) TBCC_PASTE_(a, b)
#define TBCC_PASTE_(a, b) a##b
#define TBCC_SECOND_OF(a, b, ...) b
#define TBCC_IS_MARK(...) TBCC_SECOND_OF(__VA_ARGS__, 0, )
#define TBCC_MARK(...) ~, 1,

#define TBCC_NOTHING(...)

#include <bcc/calls.h>

#define TBCC_IS(kind, name) (__builtin_strcmp(kind, name) == 0)

/* The map types by BCC's names. A histogram with integer keys is an array, with the keys as slots. A table of programs
 * is an array that nothing uses, because call() has the functions compiled in: see bcc/calls.h. */
#define TBCC_TYPE(kind, key) ( \
	TBCC_IS(kind, "hash") ? BPF_MAP_TYPE_HASH : \
	TBCC_IS(kind, "lru_hash") ? BPF_MAP_TYPE_LRU_HASH : \
	TBCC_IS(kind, "percpu_hash") ? BPF_MAP_TYPE_PERCPU_HASH : \
	TBCC_IS(kind, "lru_percpu_hash") ? BPF_MAP_TYPE_LRU_PERCPU_HASH : \
	TBCC_IS(kind, "array") ? BPF_MAP_TYPE_ARRAY : \
	TBCC_IS(kind, "percpu_array") ? BPF_MAP_TYPE_PERCPU_ARRAY : \
	TBCC_IS(kind, "lpm_trie") ? BPF_MAP_TYPE_LPM_TRIE : \
	TBCC_IS(kind, "queue") ? BPF_MAP_TYPE_QUEUE : \
	TBCC_IS(kind, "stack") ? BPF_MAP_TYPE_STACK : \
	TBCC_IS(kind, "prog") ? BPF_MAP_TYPE_ARRAY : \
	TBCC_IS(kind, "histogram") ? (TBCC_IS_INT(key) ? BPF_MAP_TYPE_ARRAY : BPF_MAP_TYPE_HASH) : \
	TBCC_IS(kind, "perf_output") ? BPF_MAP_TYPE_PERF_EVENT_ARRAY : \
	BPF_MAP_TYPE_UNSPEC)
#define TBCC_IS_INT(type) (__builtin_types_compatible_p(type, int) || __builtin_types_compatible_p(type, u32))

/* Adds to a number of 1, 2, 4 or 8 bytes. The addition is atomic only for 4 and 8 bytes. */
#define TBCC_ADD(number, size, n) do { \
	if ((size) == 8) \
		__sync_fetch_and_add((u64 *)(number), (u64)(n)); \
	else if ((size) == 4) \
		__sync_fetch_and_add((u32 *)(number), (u32)(n)); \
	else if ((size) == 2) \
		*(u16 *)(number) += (u16)(n); \
	else if ((size) == 1) \
		*(u8 *)(number) += (u8)(n); \
} while (0)

/* Tells whether the values of a table are integers. Other tables have no increment(). */
#define TBCC_IS_NUMBER(type) _Generic(*(__typeof__(type) *)0, \
	bool: 1, char: 1, signed char: 1, unsigned char: 1, short: 1, unsigned short: 1, int: 1, unsigned int: 1, \
	long: 1, unsigned long: 1, long long: 1, unsigned long long: 1, default: 0)
typedef int increment_is_for_integers;
#define TBCC_ADDER(key_type, leaf_type) __typeof__(__builtin_choose_expr( \
	TBCC_IS_NUMBER(leaf_type), (void (*)(__typeof__(key_type), u64))0, (increment_is_for_integers)0))

/* Messages about members that probes can't use. */
#define TBCC_NO_PROGRAMS(name) "no function stands in a slot of " name ", so that call() goes on with the next statement; the field calls " \
	"of the direction says which ones do: \"calls\": {\"" name "\": {\"1\": \"FUNCTION\"}}"
#define TBCC_NO_TASK "it is about tasks of this host, and packets belong to none"
#define TBCC_UNAVAILABLE(name, why) int (*name)(/* any arguments */) __attribute__((unavailable(why)));

/* A table. The initializer does not name call(), because the name would raise the warning for every table. Sources do
 * not test the result of lookup_or_init(), so for a full table it returns a value outside of all entries.
 * lookup_or_try_init() returns NULL then.
 * increment() is the same as atomic_increment(), and inserts a missing entry. */
#define BPF_F_TABLE(kind, key_type, leaf_type, name, size, flags) \
	TBCC_TABLE(TBCC_KIND(kind, name), key_type, leaf_type, name, size, flags)
/* The type of an "extern" table is in the source of the other direction. */
#define TBCC_KIND(kind, name) TBCC_IF(TBCC_IS_MARK(TWINPROBE_EXTERN_##name))(TWINPROBE_TYPE_##name, kind)
#define TBCC_TABLE(...) TBCC_TABLE_(__VA_ARGS__)
#define TBCC_TABLE_(kind, key_type, leaf_type, name, size, flags) \
struct name##_table_t { \
	void (*call)(void *, u32) \
		TBCC_IF(TBCC_HAS_PROGRAMS(name))(, __attribute__((deprecated(TBCC_NO_PROGRAMS(#name))))); \
	__typeof__(leaf_type) *(*lookup)(const __typeof__(key_type) *); \
	__typeof__(leaf_type) *(*lookup_or_try_init)(const __typeof__(key_type) *, const __typeof__(leaf_type) *); \
	__typeof__(leaf_type) *(*lookup_or_init)(const __typeof__(key_type) *, const __typeof__(leaf_type) *); \
	int (*update)(const __typeof__(key_type) *, const __typeof__(leaf_type) *); \
	int (*insert)(const __typeof__(key_type) *, const __typeof__(leaf_type) *); \
	int (*delete)(const __typeof__(key_type) *); \
	TBCC_ADDER(key_type, leaf_type) increment; \
	TBCC_ADDER(key_type, leaf_type) atomic_increment; \
	TBCC_UNAVAILABLE(get_stackid, "stack traces show how a function of the kernel was reached; a packet has none") \
	TBCC_UNAVAILABLE(sk_storage_get, TBCC_NO_TASK "; keep state by address and port in a BPF_HASH") \
	TBCC_UNAVAILABLE(sk_storage_delete, TBCC_NO_TASK "; keep state by address and port in a BPF_HASH") \
	TBCC_UNAVAILABLE(task_storage_get, TBCC_NO_TASK) \
	TBCC_UNAVAILABLE(inode_storage_get, TBCC_NO_TASK) \
	TBCC_UNAVAILABLE(check_current_task, TBCC_NO_TASK) \
	TBCC_UNAVAILABLE(perf_read, "hardware counters say nothing about packets; measure the cost of a probe by POST /v1/validate") \
	u32 max_entries; \
}; \
_Static_assert(TBCC_TYPE(kind, key_type) != BPF_MAP_TYPE_UNSPEC, \
	       "there is no table of type " kind " for packets; BPF_TABLE has hash, lru_hash, percpu_hash, lru_percpu_hash, " \
	       "array, percpu_array, lpm_trie, prog and histogram, and extern for a table that the other direction has"); \
struct { \
	int (*type)[TBCC_TYPE(kind, key_type)]; \
	int (*max_entries)[size]; \
	int (*map_flags)[TBCC_IS(kind, "lpm_trie") ? BPF_F_NO_PREALLOC : (flags)]; \
	__typeof__(key_type) *key; \
	__typeof__(leaf_type) *value; \
} name##_map __asm__(#name) SEC(".maps"); \
static __always_inline __typeof__(leaf_type) *name##_lookup(const __typeof__(key_type) *key) \
{ \
	return bpf_map_lookup_elem(&name##_map, key); \
} \
static __always_inline int name##_update(const __typeof__(key_type) *key, const __typeof__(leaf_type) *leaf) \
{ \
	return bpf_map_update_elem(&name##_map, key, leaf, BPF_ANY); \
} \
static __always_inline int name##_insert(const __typeof__(key_type) *key, const __typeof__(leaf_type) *leaf) \
{ \
	return bpf_map_update_elem(&name##_map, key, leaf, BPF_NOEXIST); \
} \
static __always_inline int name##_delete(const __typeof__(key_type) *key) \
{ \
	return bpf_map_delete_elem(&name##_map, key); \
} \
static __always_inline __typeof__(leaf_type) * \
name##_lookup_or_try_init(const __typeof__(key_type) *key, const __typeof__(leaf_type) *leaf) \
{ \
	__typeof__(leaf_type) *found = bpf_map_lookup_elem(&name##_map, key); \
	if (found) \
		return found; \
	bpf_map_update_elem(&name##_map, key, leaf, BPF_NOEXIST); \
	return bpf_map_lookup_elem(&name##_map, key); \
} \
static __always_inline __typeof__(leaf_type) * \
name##_lookup_or_init(const __typeof__(key_type) *key, const __typeof__(leaf_type) *leaf) \
{ \
	static __typeof__(leaf_type) lost; \
	__typeof__(leaf_type) *found = name##_lookup_or_try_init(key, leaf); \
	if (found) \
		return found; \
	__builtin_memcpy(&lost, leaf, sizeof(lost)); \
	return &lost; \
} \
static __always_inline void name##_increment(__typeof__(key_type) key, u64 n) \
{ \
	__typeof__(leaf_type) *found = bpf_map_lookup_elem(&name##_map, &key); \
	if (!found && TBCC_TYPE(kind, key_type) != BPF_MAP_TYPE_ARRAY && TBCC_TYPE(kind, key_type) != BPF_MAP_TYPE_PERCPU_ARRAY) { \
		__typeof__(leaf_type) zero; \
		__builtin_memset(&zero, 0, sizeof(zero)); \
		found = name##_lookup_or_try_init(&key, &zero); \
	} \
	if (found) \
		TBCC_ADD(found, sizeof(leaf_type), n); \
} \
static __always_inline void name##_call(void *ctx, u32 slot) \
{ \
	TBCC_IF(TBCC_HAS_PROGRAMS(name))(TBCC_CALL, TBCC_NOTHING)(size, TWINPROBE_CALLS_##name) \
} \
_Pragma("clang diagnostic push") \
_Pragma("clang diagnostic ignored \"-Wdeprecated-declarations\"") \
static const struct name##_table_t name __asm__("twinprobe." #name) __attribute__((unused)) = { \
	name##_call, \
	.lookup = name##_lookup, \
	.lookup_or_try_init = name##_lookup_or_try_init, \
	.lookup_or_init = name##_lookup_or_init, \
	.update = name##_update, \
	.insert = name##_insert, \
	.delete = name##_delete, \
	.increment = __builtin_choose_expr(TBCC_IS_NUMBER(leaf_type), name##_increment, 0), \
	.atomic_increment = __builtin_choose_expr(TBCC_IS_NUMBER(leaf_type), name##_increment, 0), \
	.max_entries = (size), \
} \
_Pragma("clang diagnostic pop")


#define BPF_TABLE(kind, key_type, leaf_type, name, size) BPF_F_TABLE(kind, key_type, leaf_type, name, size, 0)

/* BCC's tables for other programs. In a probe, the directions share the maps in the configuration's `shared_maps`. */
#define BPF_TABLE_PUBLIC(kind, key_type, leaf_type, name, size) BPF_F_TABLE(kind, key_type, leaf_type, name, size, 0)
#define BPF_TABLE_SHARED(kind, key_type, leaf_type, name, size, ...) \
	BPF_F_TABLE(kind, key_type, leaf_type, name, size, TBCC_DEFAULT(0, ##__VA_ARGS__))
#define BPF_TABLE_PINNED(kind, key_type, leaf_type, name, size, path, ...) \
	BPF_F_TABLE(kind, key_type, leaf_type, name, size, TBCC_DEFAULT(0, ##__VA_ARGS__))

/* The last of one or two arguments, so that the second one replaces the default. */
#define TBCC_DEFAULT(...) TBCC_LAST(__VA_ARGS__, TBCC_SECOND, TBCC_FIRST)(__VA_ARGS__)
#define TBCC_LAST(a, b, macro, ...) macro
#define TBCC_FIRST(a) a
#define TBCC_SECOND(a, b) b
/* The macro for 1, 2, 3 or 4 arguments. */
#define TBCC_BY_COUNT(a, b, c, d, macro, ...) macro

#define TBCC_HASH_1(kind, flags, name) BPF_F_TABLE(kind, u64, u64, name, 10240, flags)
#define TBCC_HASH_2(kind, flags, name, key_type) BPF_F_TABLE(kind, key_type, u64, name, 10240, flags)
#define TBCC_HASH_3(kind, flags, name, key_type, leaf_type) BPF_F_TABLE(kind, key_type, leaf_type, name, 10240, flags)
#define TBCC_HASH_4(kind, flags, name, key_type, leaf_type, size) BPF_F_TABLE(kind, key_type, leaf_type, name, size, flags)
#define TBCC_HASH(kind, flags, ...) \
	TBCC_BY_COUNT(__VA_ARGS__, TBCC_HASH_4, TBCC_HASH_3, TBCC_HASH_2, TBCC_HASH_1)(kind, flags, __VA_ARGS__)
/* (name, key_type = u64, leaf_type = u64, size = 10240) */
#define BPF_HASH(...) TBCC_HASH("hash", 0, __VA_ARGS__)
#define BPF_PERCPU_HASH(...) TBCC_HASH("percpu_hash", 0, __VA_ARGS__)
#define BPF_LPM_TRIE(...) TBCC_HASH("lpm_trie", BPF_F_NO_PREALLOC, __VA_ARGS__)

#define TBCC_ARRAY_1(kind, name) BPF_F_TABLE(kind, int, u64, name, 10240, 0)
#define TBCC_ARRAY_2(kind, name, leaf_type) BPF_F_TABLE(kind, int, leaf_type, name, 10240, 0)
#define TBCC_ARRAY_3(kind, name, leaf_type, size) BPF_F_TABLE(kind, int, leaf_type, name, size, 0)
#define TBCC_ARRAY(kind, ...) TBCC_BY_COUNT(__VA_ARGS__, , TBCC_ARRAY_3, TBCC_ARRAY_2, TBCC_ARRAY_1)(kind, __VA_ARGS__)
/* (name, leaf_type = u64, size = 10240) */
#define BPF_ARRAY(...) TBCC_ARRAY("array", __VA_ARGS__)
#define BPF_PERCPU_ARRAY(...) TBCC_ARRAY("percpu_array", __VA_ARGS__)

#define TBCC_HISTOGRAM_1(name) BPF_F_TABLE("histogram", int, u64, name, 64, 0)
#define TBCC_HISTOGRAM_2(name, key_type) BPF_F_TABLE("histogram", key_type, u64, name, 64, 0)
#define TBCC_HISTOGRAM_3(name, key_type, size) BPF_F_TABLE("histogram", key_type, u64, name, size, 0)
/* (name, key_type = int, size = 64) */
#define BPF_HISTOGRAM(...) \
	TBCC_BY_COUNT(__VA_ARGS__, , TBCC_HISTOGRAM_3, TBCC_HISTOGRAM_2, TBCC_HISTOGRAM_1)(__VA_ARGS__)

#define BPF_PROG_ARRAY(name, size) BPF_F_TABLE("prog", u32, u32, name, size, 0)

#define BPF_QUEUESTACK(kind, name, leaf_type, size, flags) \
	TBCC_QUEUESTACK(TBCC_KIND(kind, name), name, leaf_type, size, flags)
#define TBCC_QUEUESTACK(...) TBCC_QUEUESTACK_(__VA_ARGS__)
#define TBCC_QUEUESTACK_(kind, name, leaf_type, size, flags) \
struct name##_table_t { \
	int (*push)(const __typeof__(leaf_type) *, u64); \
	int (*pop)(__typeof__(leaf_type) *); \
	int (*peek)(__typeof__(leaf_type) *); \
	u32 max_entries; \
}; \
_Static_assert(TBCC_TYPE(kind, int) == BPF_MAP_TYPE_QUEUE || TBCC_TYPE(kind, int) == BPF_MAP_TYPE_STACK, \
	       "BPF_QUEUESTACK has no type " kind "; it has queue and stack"); \
struct { \
	int (*type)[TBCC_TYPE(kind, int)]; \
	int (*max_entries)[size]; \
	int (*map_flags)[flags]; \
	__typeof__(leaf_type) *value; \
} name##_map __asm__(#name) SEC(".maps"); \
static __always_inline int name##_push(const __typeof__(leaf_type) *leaf, u64 mode) \
{ \
	return bpf_map_push_elem(&name##_map, leaf, mode); \
} \
static __always_inline int name##_pop(__typeof__(leaf_type) *leaf) \
{ \
	return bpf_map_pop_elem(&name##_map, leaf); \
} \
static __always_inline int name##_peek(__typeof__(leaf_type) *leaf) \
{ \
	return bpf_map_peek_elem(&name##_map, leaf); \
} \
static const struct name##_table_t name __asm__("twinprobe." #name) __attribute__((unused)) = { \
	.push = name##_push, \
	.pop = name##_pop, \
	.peek = name##_peek, \
	.max_entries = (size), \
}
#define BPF_QUEUESTACK_PUBLIC(kind, name, leaf_type, size, flags) BPF_QUEUESTACK(kind, name, leaf_type, size, flags)
#define BPF_QUEUESTACK_SHARED(kind, name, leaf_type, size, flags) BPF_QUEUESTACK(kind, name, leaf_type, size, flags)
#define BPF_QUEUESTACK_PINNED(kind, name, leaf_type, size, flags, path) \
	BPF_QUEUESTACK(kind, name, leaf_type, size, flags)
/* (name, leaf_type, size, flags = 0) */
#define BPF_QUEUE(name, leaf_type, size, ...) BPF_QUEUESTACK("queue", name, leaf_type, size, TBCC_DEFAULT(0, ##__VA_ARGS__))
#define BPF_STACK(name, leaf_type, size, ...) BPF_QUEUESTACK("stack", name, leaf_type, size, TBCC_DEFAULT(0, ##__VA_ARGS__))

/* Keeps the type of an event in the object, so that a metric's `type` can name it. */
#define TBCC_EVENT(data) ({ \
	static __typeof__(*(data)) *const twinprobe_event SEC(".twinprobe.events"); \
	(data); \
})

#define BPF_PERF_OUTPUT(name) \
struct name##_table_t { \
	int (*perf_submit)(void *, const void *, u32); \
	int (*perf_submit_skb)(void *, u32, const void *, u32); \
}; \
struct { \
	int (*type)[BPF_MAP_TYPE_PERF_EVENT_ARRAY]; \
	int (*key_size)[sizeof(u32)]; \
	int (*value_size)[sizeof(u32)]; \
} name##_map __asm__(#name) SEC(".maps"); \
static __always_inline int name##_perf_submit(void *ctx, const void *data, u32 size) \
{ \
	return bpf_perf_event_output(ctx, &name##_map, BPF_F_CURRENT_CPU, (void *)data, size); \
} \
static __always_inline int name##_perf_submit_skb(void *ctx, u32 packet_bytes, const void *data, u32 size) \
{ \
	return bpf_perf_event_output(ctx, &name##_map, (u64)packet_bytes << 32 | BPF_F_CURRENT_CPU, (void *)data, size); \
} \
static const struct name##_table_t name __asm__("twinprobe." #name) __attribute__((unused)) = { \
	.perf_submit = name##_perf_submit, \
	.perf_submit_skb = name##_perf_submit_skb, \
}
#define perf_submit(ctx, data, size) perf_submit(ctx, TBCC_EVENT(data), size)
#define perf_submit_skb(ctx, packet_bytes, data, size) perf_submit_skb(ctx, packet_bytes, TBCC_EVENT(data), size)

#define BPF_RINGBUF_OUTPUT(name, pages) \
struct name##_table_t { \
	int (*ringbuf_output)(const void *, u64, u64); \
	void *(*ringbuf_reserve)(u64); \
	void (*ringbuf_submit)(void *, u64); \
	void (*ringbuf_discard)(void *, u64); \
	u64 (*ringbuf_query)(u64); \
}; \
struct { \
	int (*type)[BPF_MAP_TYPE_RINGBUF]; \
	int (*max_entries)[(pages) * PAGE_SIZE]; \
} name##_map __asm__(#name) SEC(".maps"); \
static __always_inline int name##_ringbuf_output(const void *data, u64 size, u64 flags) \
{ \
	return bpf_ringbuf_output(&name##_map, (void *)data, size, flags); \
} \
static __always_inline void *name##_ringbuf_reserve(u64 size) \
{ \
	return bpf_ringbuf_reserve(&name##_map, size, 0); \
} \
static __always_inline void name##_ringbuf_submit(void *data, u64 flags) \
{ \
	bpf_ringbuf_submit(data, flags); \
} \
static __always_inline void name##_ringbuf_discard(void *data, u64 flags) \
{ \
	bpf_ringbuf_discard(data, flags); \
} \
static __always_inline u64 name##_ringbuf_query(u64 flags) \
{ \
	return bpf_ringbuf_query(&name##_map, flags); \
} \
static const struct name##_table_t name __asm__("twinprobe." #name) __attribute__((unused)) = { \
	.ringbuf_output = name##_ringbuf_output, \
	.ringbuf_reserve = name##_ringbuf_reserve, \
	.ringbuf_submit = name##_ringbuf_submit, \
	.ringbuf_discard = name##_ringbuf_discard, \
	.ringbuf_query = name##_ringbuf_query, \
}
#define ringbuf_output(data, size, flags) ringbuf_output(TBCC_EVENT(data), size, flags)
#define ringbuf_submit(data, flags) ringbuf_submit(TBCC_EVENT(data), flags)

/* Without a second argument, these add 1. */
#define increment(...) TBCC_INCREMENT(__VA_ARGS__, increment(__VA_ARGS__), increment(__VA_ARGS__, 1))
#define atomic_increment(...) TBCC_INCREMENT(__VA_ARGS__, atomic_increment(__VA_ARGS__), atomic_increment(__VA_ARGS__, 1))
#define TBCC_INCREMENT(key, n, call, ...) call

#endif
