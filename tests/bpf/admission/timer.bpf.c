// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts packets and starts a timer. The daemon refuses it: timers run after a grace period.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct alarm {
	struct bpf_timer timer;
	__u64 armed;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct alarm);
} alarms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} packets SEC(".maps");

static int ring(void *map, __u32 *key, struct alarm *alarm)
{
	alarm->armed = 0;
	return 0;
}

SEC("xdp") int probe(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct alarm *alarm = bpf_map_lookup_elem(&alarms, &key);
	__u64 *value = bpf_map_lookup_elem(&packets, &key);

	if (!alarm || !value)
		return XDP_PASS;
	*value += 1;
	if (!alarm->armed) {
		alarm->armed = 1;
		bpf_timer_init(&alarm->timer, &alarms, 1);     // refused
		bpf_timer_set_callback(&alarm->timer, ring); // refused
		bpf_timer_start(&alarm->timer, 1000000, 0);    // refused
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
