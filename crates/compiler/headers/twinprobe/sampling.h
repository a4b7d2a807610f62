/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Histograms and samples. twinprobe.h has the overview. */
#ifndef TWINPROBE_SAMPLING_H
#define TWINPROBE_SAMPLING_H

#define TP_HISTOGRAM(NAME) TP_PERCPU_ARRAY(NAME, __u64, 64) TP_AS(histogram)
#define TP_LINEAR(NAME, SLOTS) TP_PERCPU_ARRAY(NAME, __u64, SLOTS)

#define TP_ENTRIES(NAME) (sizeof(*NAME.max_entries) / sizeof(int))

#define tp_histogram_add(NAME, VALUE, N)			\
	({							\
		__u64 *tp_slot_ = tp_at_index(NAME, tp_log2(VALUE));	\
		if (tp_slot_)					\
			*tp_slot_ += (N);			\
	})

#define tp_histogram(NAME, VALUE) tp_histogram_add(NAME, VALUE, 1)

/* A histogram that also keeps the sum of its values. */
#define TP_HISTOGRAM_SUM(NAME) TP_HISTOGRAM(NAME); TP_PERCPU_ARRAY(NAME##_sum, __u64, 1)

#define tp_histogram_sum_add(NAME, VALUE, N)			\
	({							\
		__u64 tp_value_ = (VALUE), tp_times_ = (N);	\
		__u64 *tp_sum_ = tp_at_index(NAME##_sum, 0);	\
								\
		tp_histogram_add(NAME, tp_value_, tp_times_);	\
		if (tp_sum_)					\
			*tp_sum_ += tp_value_ * tp_times_;	\
	})

#define tp_histogram_sum(NAME, VALUE) tp_histogram_sum_add(NAME, VALUE, 1)

#define tp_linear(NAME, VALUE, WIDTH)									\
	({												\
		__u64 tp_number_ = (__u64)(VALUE) / (WIDTH);						\
		__u64 *tp_slot_ = tp_at_index(NAME,							\
			tp_number_ < TP_ENTRIES(NAME) ? tp_number_ : TP_ENTRIES(NAME) - 1);		\
		if (tp_slot_)										\
			(*tp_slot_)++;									\
	})

static __always_inline int tp_sample(__u32 n)
{
	TP_SEES(packets);
	return tp_scale(bpf_get_prandom_u32(), n) == 0;
}

#define TP_RESERVOIR(NAME, TYPE, SIZE)		\
	struct NAME##_place {			\
		__u64 seen;			\
		TYPE item;			\
	};					\
	TP_ARRAY(NAME, struct NAME##_place, (SIZE) + 1)

/*
 * Algorithm R: item n is stored at place n while places are empty, then at a random one of n places, or left out if
 * that place does not exist. Two CPUs may draw the same n, which distorts the sample a little.
 */
static __always_inline __u32 tp_reservoir_place(__u64 seen, __u32 size)
{
	__u32 n = seen < 0xffffffff ? seen : 0xffffffff;

	return n <= size ? n : 1 + tp_scale(bpf_get_prandom_u32(), n);
}

#define tp_reservoir(NAME)									\
	({											\
		__typeof__(*NAME.value) *tp_place_ = tp_at_index(NAME, 0);			\
		__u64 tp_seen_ = 0;								\
		if (tp_place_) {								\
			tp_add(&tp_place_->seen, 1);						\
			tp_seen_ = tp_place_->seen;						\
			tp_place_ = tp_at_index(NAME, tp_reservoir_place(tp_seen_, TP_ENTRIES(NAME) - 1));	\
			if (tp_place_)								\
				tp_place_->seen = tp_seen_;					\
		}										\
		tp_place_ ? &tp_place_->item : 0;						\
	})

#endif
