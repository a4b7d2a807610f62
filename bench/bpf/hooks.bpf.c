// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs that show the cost of a hook itself: one does nothing, one drops the packets behind the hook and
// counts them, and others copy 1 KiB of a packet. COPY is 1: eight bytes at a time, 2: by the kernel's
// helper, 3: by the helper into a ring. Only aya loads them. Compile with hook.h before them.

#define KIB 1024

struct copy {
	__u64 words[KIB / 8];
};

#if COPY == 3
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} events SEC(".maps");
#elif COPY
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct copy);
	__uint(max_entries, 1);
} copies SEC(".maps");
#endif

SEC(SECTION) int hook(struct CONTEXT *ctx)
{
#if COPY == 3
	struct copy *copy = bpf_ringbuf_reserve(&events, sizeof(*copy), 0);

	if (!copy)
		return DROP;
	if (LOAD(ctx, 0, copy, KIB)) {
		bpf_ringbuf_discard(copy, 0);
		return DROP;
	}
	bpf_ringbuf_submit(copy, 0);
#elif COPY
	__u32 zero = 0;
	struct copy *copy = bpf_map_lookup_elem(&copies, &zero);

	if (!copy)
		return DROP;
#if COPY == 1
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + KIB > end)
		return DROP;
#pragma unroll
	for (int i = 0; i < KIB / 8; i++)
		copy->words[i] = ((const volatile __u64 *)data)[i];
#else
	if (LOAD(ctx, 0, copy, KIB))
		return DROP;
#endif
#endif
	return PASS;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} ended SEC(".maps");

SEC("classifier") int finish(struct __sk_buff *ctx)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&ended, &zero);

	if (count)
		*count += 1;
	return 2;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
