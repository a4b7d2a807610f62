// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The tools of "No Two Snowflakes Are Alike" (eBPF '25) at a network hook, for packets to port 80:
//   SYSCOUNT           counts packets by source address, and reports nothing (the paper's syscount)
//   PAYLOAD=0          reports packets as events of 156 bytes (rw-tracer)
//   PAYLOAD=4096       reports packets as events of 4,252 bytes (rw-tracer-all)
//   INTERVAL           the nanoseconds between two events; 0: each packet is one
//   RING               the size of the ring in bytes
// Events are numbered on each CPU, those that found no room included: so a consumer sees which events it has missed.
// Compiled behind hook.h.

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1024);
} counts SEC(".maps");

#ifndef SYSCOUNT
struct event {
#if PAYLOAD
	__u8 data[PAYLOAD] __attribute__((btf_decl_tag("hex")));
#endif
	__u64 serial;
	__u64 time;
	/* The sum by XOR of the two above, the addresses and the payload. */
	__u64 check;
	__u32 source __attribute__((btf_decl_tag("ipv4")));
	__u32 destination __attribute__((btf_decl_tag("ipv4")));
	__u16 source_port __attribute__((btf_decl_tag("be16")));
	__u16 destination_port __attribute__((btf_decl_tag("be16")));
	__u32 cpu;
	__u32 flags;
	__u32 process;
	__u32 thread;
	__s64 result;
	__s64 offset;
	__s64 size;
	char name[16];
	char path[64];
} __attribute__((packed, aligned(4)));

_Static_assert(sizeof(struct event) == 156 + PAYLOAD, "the sizes that are compared");

struct event *unused __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING);
} events SEC(".maps");

struct producer {
	__u64 due;
	__u64 events;
	__u64 lost;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct producer);
	__uint(max_entries, 1);
} producers SEC(".maps");

static __always_inline void report_event(const __u8 *data, const __u8 *end)
{
	__u32 zero = 0;
	struct producer *producer = bpf_map_lookup_elem(&producers, &zero);
	__u64 now = bpf_ktime_get_ns(), check;
	struct event *event;

	/* After a pause of the sender, missed events do not follow. */
	if (!producer || (INTERVAL && now < producer->due))
		return;
	if (INTERVAL)
		producer->due = (now - producer->due > 1000000 ? now : producer->due) + INTERVAL;
	__u64 serial = producer->events++;

	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		producer->lost++;
		return;
	}
	event->serial = serial;
	event->time = now;
	__builtin_memcpy(&event->source, data + 26, 8);
	__builtin_memcpy(&event->source_port, data + 34, 4);
	event->cpu = bpf_get_smp_processor_id();
	event->flags = 0x8002;
	event->process = event->thread = 4711;
	event->result = end - data;
	event->offset = now & 0xffffff;
	event->size = 4096;
	__builtin_memset(event->name, 0, sizeof(event->name));
	__builtin_memcpy(event->name, "a-process-name", 15);
	__builtin_memset(event->path, 0, sizeof(event->path));
	__builtin_memcpy(event->path, "/a/path/that/is/neither/long/nor/short/but/like/many/others", 60);
	check = serial ^ now ^ ((__u64)event->destination << 32 | event->source);
#if PAYLOAD
	__u64 *words = (__u64 *)event->data;

	for (int i = 0; i < PAYLOAD / 8; i++) {
		__u64 word = (serial + i) * 0x9e3779b97f4a7c15;

		words[i] = word;
		check ^= word;
	}
#endif
	event->check = check;
	bpf_ringbuf_submit(event, 0);
}
#endif

SEC(SECTION) int report(struct CONTEXT *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + 38 > end || *(__u16 *)(data + 36) != bpf_htons(80))
		return DROP;
#ifdef SYSCOUNT
	__u32 key = *(__u32 *)(data + 26);
	__u64 *count = bpf_map_lookup_elem(&counts, &key), one = 1;

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&counts, &key, &one, BPF_NOEXIST);
#else
	report_event(data, end);
#endif
	return DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
