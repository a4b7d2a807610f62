/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Maps and the counters of their losses. twinprobe.h has the overview. */
#ifndef TWINPROBE_MAPS_H
#define TWINPROBE_MAPS_H

/*
 * The daemon reads the counters of this section with each window, and shows them with the map's metrics. The
 * zero-length array has the type of a ring buffer's records.
 */
#define TP_LOSSES(NAME, RECORD)				\
	struct {					\
		__u64 count;				\
		RECORD record[0];			\
	} tp_lost_##NAME SEC(".data.twinprobe")

#define TP_COUNT_LOSSES(NAME) TP_LOSSES(NAME, __u8)

#define TP_MAP(TYPE, NAME, KEY, VALUE, ENTRIES)		\
	struct {					\
		__uint(type, BPF_MAP_TYPE_##TYPE);	\
		__type(key, KEY);			\
		__type(value, VALUE);			\
		__uint(max_entries, ENTRIES);		\
	} NAME SEC(".maps")

#define TP_COUNTED(TYPE, NAME, KEY, VALUE, ENTRIES)	\
	TP_MAP(TYPE, NAME, KEY, VALUE, ENTRIES);	\
	TP_COUNT_LOSSES(NAME)

#define TP_HASH(NAME, KEY, VALUE, ENTRIES) TP_COUNTED(HASH, NAME, KEY, VALUE, ENTRIES)
#define TP_LRU_HASH(NAME, KEY, VALUE, ENTRIES) TP_COUNTED(LRU_HASH, NAME, KEY, VALUE, ENTRIES)
#define TP_PERCPU_HASH(NAME, KEY, VALUE, ENTRIES) TP_COUNTED(PERCPU_HASH, NAME, KEY, VALUE, ENTRIES)
#define TP_LRU_PERCPU_HASH(NAME, KEY, VALUE, ENTRIES) TP_COUNTED(LRU_PERCPU_HASH, NAME, KEY, VALUE, ENTRIES)
#define TP_ARRAY(NAME, VALUE, ENTRIES) TP_MAP(ARRAY, NAME, __u32, VALUE, ENTRIES)
#define TP_PERCPU_ARRAY(NAME, VALUE, ENTRIES) TP_MAP(PERCPU_ARRAY, NAME, __u32, VALUE, ENTRIES)

#define TP_LPM(NAME, VALUE, ENTRIES)				\
	struct {						\
		__uint(type, BPF_MAP_TYPE_LPM_TRIE);		\
		__type(key, struct tp_prefix);			\
		__type(value, VALUE);				\
		__uint(max_entries, ENTRIES);			\
		__uint(map_flags, BPF_F_NO_PREALLOC);		\
	} NAME SEC(".maps");					\
	TP_COUNT_LOSSES(NAME)

#define TP_QUEUE(NAME, VALUE, ENTRIES)			\
	struct {					\
		__uint(type, BPF_MAP_TYPE_QUEUE);	\
		__type(value, VALUE);			\
		__uint(max_entries, ENTRIES);		\
	} NAME SEC(".maps");				\
	TP_COUNT_LOSSES(NAME)

#define TP_RINGBUF(NAME, TYPE, BYTES)			\
	struct {					\
		__uint(type, BPF_MAP_TYPE_RINGBUF);	\
		__uint(max_entries, BYTES);		\
	} NAME SEC(".maps");				\
	TP_LOSSES(NAME, TYPE)

#define TP_SCRATCH(NAME, TYPE) TP_PERCPU_ARRAY(NAME, TYPE, 1)

#define tp_add(pointer, n) ((void)__sync_fetch_and_add((pointer), (n)))

#define tp_max(pointer, n)					\
	({							\
		__typeof__(*(pointer)) tp_new_ = (n);		\
		if (*(pointer) < tp_new_)			\
			*(pointer) = tp_new_;			\
	})

#define tp_min(pointer, n)					\
	({							\
		__typeof__(*(pointer)) tp_new_ = (n);		\
		if (*(pointer) > tp_new_)			\
			*(pointer) = tp_new_;			\
	})

#define tp_lose(NAME) tp_add(&tp_lost_##NAME.count, 1)

#define tp_find(NAME, KEY)							\
	({									\
		const __typeof__(*NAME.key) *tp_key_ = (KEY);			\
		(__typeof__(*NAME.value) *)bpf_map_lookup_elem(&NAME, tp_key_);	\
	})

#define tp_at_index(NAME, INDEX)							\
	({										\
		__u32 tp_index_ = (INDEX);						\
		(__typeof__(*NAME.value) *)bpf_map_lookup_elem(&NAME, &tp_index_);	\
	})

#define tp_scratch(NAME) tp_at_index(NAME, 0)

/* If another CPU inserts first, this finds its value. */
#define tp_get(NAME, KEY)								\
	({										\
		const __typeof__(*NAME.key) *tp_key_ = (KEY);				\
		__typeof__(*NAME.value) *tp_value_ = bpf_map_lookup_elem(&NAME, tp_key_);	\
		if (!tp_value_) {							\
			__typeof__(*NAME.value) tp_zero_;				\
			__builtin_memset(&tp_zero_, 0, sizeof(tp_zero_));		\
			bpf_map_update_elem(&NAME, tp_key_, &tp_zero_, BPF_NOEXIST);	\
			tp_value_ = bpf_map_lookup_elem(&NAME, tp_key_);		\
			if (!tp_value_)							\
				tp_lose(NAME);						\
		}									\
		tp_value_;								\
	})

#define tp_update(NAME, KEY, VALUE)							\
	({										\
		const __typeof__(*NAME.key) *tp_key_ = (KEY);				\
		const __typeof__(*NAME.value) *tp_value_ = (VALUE);			\
		int tp_done_ = !bpf_map_update_elem(&NAME, tp_key_, tp_value_, BPF_ANY);	\
		if (!tp_done_)								\
			tp_lose(NAME);							\
		tp_done_;								\
	})

#define TP_EEXIST 17

#define tp_insert(NAME, KEY, VALUE)							\
	({										\
		const __typeof__(*NAME.key) *tp_key_ = (KEY);				\
		const __typeof__(*NAME.value) *tp_value_ = (VALUE);			\
		long tp_error_ = bpf_map_update_elem(&NAME, tp_key_, tp_value_, BPF_NOEXIST);	\
		if (tp_error_ && tp_error_ != -TP_EEXIST)				\
			tp_lose(NAME);							\
		!tp_error_;								\
	})

#define tp_push(NAME, VALUE)								\
	({										\
		const __typeof__(*NAME.value) *tp_value_ = (VALUE);			\
		int tp_done_ = !bpf_map_push_elem(&NAME, tp_value_, BPF_ANY);		\
		if (!tp_done_)								\
			tp_lose(NAME);							\
		tp_done_;								\
	})

#define tp_remove(NAME, KEY)						\
	({								\
		const __typeof__(*NAME.key) *tp_key_ = (KEY);		\
		!bpf_map_delete_elem(&NAME, tp_key_);			\
	})

/* Other CPUs do not write to a value of a PERCPU map. */
#define TP_IS_PERCPU(NAME)								\
	(sizeof(*NAME.type) / sizeof(int) == BPF_MAP_TYPE_PERCPU_HASH ||		\
	 sizeof(*NAME.type) / sizeof(int) == BPF_MAP_TYPE_LRU_PERCPU_HASH ||		\
	 sizeof(*NAME.type) / sizeof(int) == BPF_MAP_TYPE_PERCPU_ARRAY)

static __always_inline void tp_count_packets(struct tp_counters *counters, __u64 packets, __u64 bytes, int alone)
{
	if (alone) {
		counters->packets += packets;
		counters->bytes += bytes;
	} else {
		tp_add(&counters->packets, packets);
		tp_add(&counters->bytes, bytes);
	}
}

#define tp_count_frames(NAME, KEY, FRAMES, BYTES)						\
	({											\
		__u64 tp_frames_ = (FRAMES), tp_bytes_ = (BYTES);				\
		__typeof__(*NAME.value) *tp_counted_ = tp_get(NAME, KEY);			\
		if (tp_counted_)								\
			tp_count_packets((struct tp_counters *)tp_counted_, tp_frames_, tp_bytes_, TP_IS_PERCPU(NAME));	\
		tp_counted_;									\
	})

#define tp_count(NAME, KEY, BYTES)				\
	({							\
		TP_SEES(packets);				\
		tp_count_frames(NAME, KEY, 1, (BYTES));		\
	})

#define tp_reserve(NAME)										\
	({												\
		__typeof__(tp_lost_##NAME.record[0]) *tp_record_ =					\
			bpf_ringbuf_reserve(&NAME, sizeof(tp_lost_##NAME.record[0]), 0);		\
		if (!tp_record_)									\
			tp_lose(NAME);									\
		tp_record_;										\
	})

#define tp_submit(record) bpf_ringbuf_submit((record), 0)
#define tp_discard(record) bpf_ringbuf_discard((record), 0)

#endif
