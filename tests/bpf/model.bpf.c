// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts every packet in each selected map. The source address is the packet's number. Its upper bits are the number
// of the burst, which is the key.
//   SECTION, CONTEXT, PASS, DROP   for the hook
//   ENFORCED                       drops packets of every fourth burst
//   ON_MAP, ENTRIES_MAP, LAYOUT_MAP, TYPE_MAP   of each map
//   VARIANT                        changes the program, but not the maps
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define SHIFT 12
#define KEYS 256

// The types of a value: each packet adds 1 to `packets`, 3 to `bytes` and 5 to `extra`.
typedef __u64 value_0;
struct value_1 { __u64 packets; __u64 bytes; };
struct value_2 { __u64 bytes; __u32 extra; __u64 packets; };
struct value_3 { __u32 packets; __u64 bytes; };
struct value_4 { __u64 packets; };
typedef struct value_1 value_1;
typedef struct value_2 value_2;
typedef struct value_3 value_3;
typedef struct value_4 value_4;

#define ADD(FIELD, AMOUNT) __sync_fetch_and_add(&(FIELD), AMOUNT)
#define ADD_0(V) ADD(*(V), 1)
#define ADD_1(V) ADD((V)->packets, 1), ADD((V)->bytes, 3)
#define ADD_2(V) ADD((V)->packets, 1), ADD((V)->bytes, 3), ADD((V)->extra, 5)
#define ADD_3(V) ADD((V)->packets, 1), ADD((V)->bytes, 3)
#define ADD_4(V) ADD((V)->packets, 1)
#define GLUE_(A, B) A##B
#define GLUE(A, B) GLUE_(A, B)

struct prefix {
	__u32 prefixlen;
	__u32 key;
};

#define MAP(NAME, TYPE, KEY, ENTRIES, LAYOUT, FLAGS)                                               \
	struct {                                                                                   \
		__uint(type, TYPE);                                                                \
		__uint(max_entries, ENTRIES);                                                      \
		__uint(map_flags, FLAGS);                                                          \
		__type(key, KEY);                                                                  \
		__type(value, GLUE(value_, LAYOUT));                                               \
	} NAME SEC(".maps");                                                                       \
	static __always_inline void GLUE(count_, NAME)(const KEY *key)                             \
	{                                                                                          \
		static const GLUE(value_, LAYOUT) none;                                            \
		GLUE(value_, LAYOUT) *value = bpf_map_lookup_elem(&NAME, key);                     \
                                                                                                   \
		if (!value) {                                                                      \
			bpf_map_update_elem(&NAME, key, &none, BPF_NOEXIST);                       \
			value = bpf_map_lookup_elem(&NAME, key);                                   \
		}                                                                                  \
		if (value)                                                                         \
			GLUE(ADD_, LAYOUT)(value);                                                 \
	}

#ifdef ON_array
MAP(array, BPF_MAP_TYPE_ARRAY, __u32, ENTRIES_array, LAYOUT_array, 0)
#endif
#ifdef ON_hash
MAP(hash, TYPE_hash, __u32, ENTRIES_hash, LAYOUT_hash, 0)
#endif
#ifdef ON_percpu_array
MAP(percpu_array, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, ENTRIES_percpu_array, LAYOUT_percpu_array, 0)
#endif
#ifdef ON_percpu_hash
MAP(percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, __u32, ENTRIES_percpu_hash, LAYOUT_percpu_hash, 0)
#endif
#ifdef ON_trie
MAP(trie, BPF_MAP_TYPE_LPM_TRIE, struct prefix, ENTRIES_trie, LAYOUT_trie, BPF_F_NO_PREALLOC)
#endif
#ifdef ON_global
GLUE(value_, LAYOUT_global) global;
#endif
#ifdef ON_nested
struct inner {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENTRIES_nested);
	__type(key, __u32);
	__type(value, GLUE(value_, LAYOUT_nested));
};
struct inner even SEC(".maps"), odd SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct inner);
} nested SEC(".maps") = { .values = { [0] = &even, [1] = &odd } };
#endif
#ifdef ON_queue
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, ENTRIES_queue);
	__type(value, __u32);
} queue SEC(".maps");
#endif

SEC(SECTION) int count_packet(struct CONTEXT *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	// Only IPv4 from 10.0.0.0/8 counts.
	if (data + 30 > end || data[12] != 8 || data[13] != 0 || data[26] != 10)
		return PASS;

	__u32 number = data[27] << 16 | data[28] << 8 | data[29], key = number >> SHIFT;
	struct prefix prefix = { 32, bpf_htonl(key) };

	// No packet has this number. The comparison makes VARIANT a part of the program.
	if (number == 0xf0000000 + VARIANT)
		return DROP;
#ifdef ON_queue
	bpf_map_push_elem(&queue, &number, 0);
#endif
#ifdef ON_array
	count_array(&key);
#endif
#ifdef ON_hash
	count_hash(&key);
#endif
#ifdef ON_percpu_array
	count_percpu_array(&key);
#endif
#ifdef ON_percpu_hash
	count_percpu_hash(&key);
#endif
#ifdef ON_trie
	count_trie(&prefix);
#endif
#ifdef ON_global
	GLUE(ADD_, LAYOUT_global)(&global);
#endif
#ifdef ON_nested
	static const GLUE(value_, LAYOUT_nested) none;
	__u32 parity = key & 1;
	void *inner = bpf_map_lookup_elem(&nested, &parity);

	if (inner) {
		GLUE(value_, LAYOUT_nested) *value = bpf_map_lookup_elem(inner, &key);

		if (!value) {
			bpf_map_update_elem(inner, &key, &none, BPF_NOEXIST);
			value = bpf_map_lookup_elem(inner, &key);
		}
		if (value)
			GLUE(ADD_, LAYOUT_nested)(value);
	}
#endif
	(void)prefix;
#ifdef UNVERIFIABLE
	// The verifier refuses an access without a bounds check.
	if (data[200] == 1)
		return DROP;
#endif
#ifdef ENFORCED
	if ((key & 3) == 3)
		return DROP;
#endif
	return PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
