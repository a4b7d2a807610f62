// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reports every packet as an event, and counts events that find no room in the ring.
//   PERF           a PERF_EVENT_ARRAY instead of a RINGBUF of RING bytes
//   DISCARD        one of DISCARD packets reserves a record and discards it
//   TAIL           bytes after the event that its type does not cover
//   OTHERS         a second ring, for every other packet
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct endpoint {
	__u32 address __attribute__((btf_decl_tag("ipv4")));
	__u16 port __attribute__((btf_decl_tag("be16")));
};

/* Packed, so that its size is odd. */
struct event {
	__u64 serial;
	struct endpoint from;
	char label[7];
	__s16 numbers[2];
	__u32 length;
} __attribute__((packed));

struct record {
	struct event event;
#ifdef TAIL
	__u8 tail[TAIL];
#endif
} __attribute__((packed));

struct event *unused __attribute__((unused));

#ifndef RING
#define RING (16 << 20)
#endif

struct {
#ifdef PERF
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(int));
	__uint(value_size, sizeof(int));
#else
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING);
#endif
} events SEC(".maps");

#ifdef OTHERS
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} others SEC(".maps");
#endif

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} lost SEC(".maps");

static __u64 serial;

static __always_inline void fill(struct event *event, __u64 n, const __u8 *data, const __u8 *end)
{
	event->serial = n;
	event->from.address = 0;
	event->from.port = 0;
	if (data + 38 <= end) {
		__builtin_memcpy(&event->from.address, data + 26, 4);
		__builtin_memcpy(&event->from.port, data + 34, 2);
	}
	__builtin_memcpy(event->label, "packet", 7);
	event->numbers[0] = -1;
	event->numbers[1] = 2;
	event->length = end - data;
}

SEC("xdp") int report(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 n = __sync_fetch_and_add(&serial, 1);
	__u64 *missing;
	__u32 zero = 0;
	long failed = 0;

#ifdef PERF
	struct record record = {};

	fill(&record.event, n, data, end);
	failed = bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, &record, sizeof(record));
#else
	struct record *record;

#ifdef DISCARD
	if (n % DISCARD == 0) {
		record = bpf_ringbuf_reserve(&events, sizeof(*record), 0);
		if (record)
			bpf_ringbuf_discard(record, 0);
	}
#endif
#ifdef OTHERS
	if (n % 2) {
		struct event other;

		fill(&other, n, data, end);
		bpf_ringbuf_output(&others, &other, sizeof(other), 0);
		return XDP_DROP;
	}
#endif
	record = bpf_ringbuf_reserve(&events, sizeof(*record), 0);
	if (record) {
		fill(&record->event, n, data, end);
#ifdef TAIL
		for (int i = 0; i < TAIL; i++)
			record->tail[i] = i;
#endif
		bpf_ringbuf_submit(record, 0);
	}
	failed = !record;
#endif
	missing = bpf_map_lookup_elem(&lost, &zero);
	if (failed && missing)
		__sync_fetch_and_add(missing, 1);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
