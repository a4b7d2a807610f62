// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The stages of a tracer ("Dissecting Storage I/O Tracing Overhead of eBPF") at a network hook, each by a macro: FILTER,
// RESERVE, BUILD, COMMIT.
// Compiled behind hook.h.

/* As large as the paper's. */
struct event {
	__u64 time;
	__u32 source;
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
	__u32 length;
	__u32 cpu;
	__u32 interface;
	__u64 serial;
	__u64 flags;
};

_Static_assert(sizeof(struct event) == 48, "the size of the paper's event");

struct event *unused __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} events SEC(".maps");

SEC(SECTION) int stage(struct CONTEXT *ctx)
{
#if defined(FILTER) || defined(BUILD)
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + 38 > end)
		return DROP;
#endif
#ifdef FILTER
	if (*(__u16 *)(data + 36) != bpf_htons(80))
		return DROP;
#endif
#ifdef RESERVE
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return DROP;
#elif defined(BUILD)
	struct event built, *event = &built;
#endif
#ifdef BUILD
	event->time = bpf_ktime_get_ns();
	event->source = *(__u32 *)(data + 26);
	event->destination = *(__u32 *)(data + 30);
	event->source_port = *(__u16 *)(data + 34);
	event->destination_port = *(__u16 *)(data + 36);
	event->length = end - data;
	event->cpu = bpf_get_smp_processor_id();
	event->interface = ctx->ingress_ifindex;
	event->serial = event->time ^ event->source;
	event->flags = 0;
	asm volatile("" : : "r"(event) : "memory");
#endif
#ifdef RESERVE
#ifdef COMMIT
	bpf_ringbuf_submit(event, 0);
#else
	bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
#endif
#endif
	return PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
