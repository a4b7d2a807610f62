// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reports packets as events of 156 bytes, and with PAYLOAD = 4096 of 4,252 bytes: the sizes of the tracers in "No Two
// Snowflakes Are Alike" (eBPF '25). INTERVAL nanoseconds lie between two events.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct event {
	__u64 serial;
	__u64 started;
	__u64 ended;
	__u32 source __attribute__((btf_decl_tag("ipv4")));
	__u32 destination __attribute__((btf_decl_tag("ipv4")));
	__u16 source_port __attribute__((btf_decl_tag("be16")));
	__u16 destination_port __attribute__((btf_decl_tag("be16")));
	__u32 process;
	__u32 thread;
	__u32 cpu;
	__u32 flags;
	__s64 result;
	__s64 offset;
	__s64 size;
	char name[16];
	char path[64];
#if PAYLOAD
	__u8 data[PAYLOAD] __attribute__((btf_decl_tag("hex")));
#endif
} __attribute__((packed));

_Static_assert(sizeof(struct event) == 156 + PAYLOAD, "the sizes that are compared");

struct event *unused __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} events SEC(".maps");

/* The numbers of events that were reported, and that were not for want of room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 2);
} counts SEC(".maps");

static __u64 due;

static __always_inline void count(__u32 index)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &index);

	if (value)
		*value += 1;
}

SEC("xdp") int report(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 now = bpf_ktime_get_ns();
	struct event *event;

	/* Events that were not due during a pause of the sender are not made up for. */
	if (now < due)
		return XDP_DROP;
	due = (now - due > 1000000 ? now : due) + INTERVAL;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(1);
		return XDP_DROP;
	}
	count(0);
	event->serial = now;
	event->started = now - 1000;
	event->ended = now;
	event->source = event->destination = 0;
	event->source_port = event->destination_port = 0;
	if (data + 38 <= end) {
		__builtin_memcpy(&event->source, data + 26, 8);
		__builtin_memcpy(&event->source_port, data + 34, 4);
	}
	event->process = event->thread = 4711;
	event->cpu = bpf_get_smp_processor_id();
	event->flags = 0x8002;
	event->result = end - data;
	event->offset = now & 0xffffff;
	event->size = 4096;
	__builtin_memcpy(event->name, "a-process-name", 15);
	__builtin_memcpy(event->path, "/a/path/that/is/neither/long/nor/short/but/like/many/others", 60);
	bpf_ringbuf_submit(event, 0);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
