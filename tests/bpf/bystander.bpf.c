// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts every packet in a window, in a sum of windows and in a live counter, and lets it pass. The macros SECTION and
// CONTEXT choose XDP or TC, and TYPE is the type of maps.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAP(NAME, KIND)                                                                            \
	struct {                                                                                   \
		__uint(type, KIND);                                                                \
		__uint(max_entries, 4);                                                            \
		__type(key, __u32);                                                                \
		__type(value, __u64);                                                              \
	} NAME SEC(".maps")

MAP(by_window, TYPE);
MAP(by_sum, TYPE);
MAP(by_live, BPF_MAP_TYPE_ARRAY);

static __always_inline void count(void *map)
{
	__u32 key = 0;
	__u64 one = 1, *value = bpf_map_lookup_elem(map, &key);

	if (!value) {
		if (!bpf_map_update_elem(map, &key, &one, BPF_NOEXIST))
			return;
		/* Another CPU has inserted the entry meanwhile. */
		value = bpf_map_lookup_elem(map, &key);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC(SECTION) int stand_by(struct CONTEXT *ctx)
{
	count(&by_window);
	count(&by_sum);
	count(&by_live);
	/* XDP_PASS or TC_ACT_OK. The daemon overrules both: the probe observes. */
	return PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
