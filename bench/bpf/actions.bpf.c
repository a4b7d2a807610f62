// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The actions of Gregg's benchmark of tracers, as far as a network hook has them: ACTION is the number of the experiment in
// "Benchmarking Performance Overhead of DTrace on FreeBSD and eBPF on Linux".
// Compiled behind hook.h.

#define MAP(NAME, TYPE, KEY, VALUE, ENTRIES) \
	struct { __uint(type, TYPE); __type(key, KEY); __type(value, VALUE); __uint(max_entries, ENTRIES); } NAME SEC(".maps")

/* The key is as long as the name of a process. */
struct name {
	char text[16];
};

struct pair {
	__u32 address;
	struct name name;
};

struct bucket {
	struct pair pair;
	__u32 bucket;
};

#if ACTION == 9
MAP(counts, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, 1);
#elif ACTION == 10
MAP(counts, BPF_MAP_TYPE_PERCPU_HASH, __u32, __u64, 4096);
#elif ACTION == 11
MAP(counts, BPF_MAP_TYPE_PERCPU_HASH, struct name, __u64, 4096);
#elif ACTION == 12
MAP(counts, BPF_MAP_TYPE_PERCPU_HASH, struct pair, __u64, 4096);
#elif ACTION == 15 || ACTION == 16
MAP(counts, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, 65);
#elif ACTION == 17
MAP(counts, BPF_MAP_TYPE_PERCPU_HASH, struct bucket, __u64, 4096);
#endif
#if ACTION == 16
MAP(starts, BPF_MAP_TYPE_HASH, __u32, __u64, 4096);
#endif
#if ACTION == 18
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} events SEC(".maps");
#endif

static __always_inline __u32 log2(__u64 value)
{
	__u32 result = 0;

#pragma unroll
	for (int bits = 32; bits; bits /= 2)
		if (value >> bits) {
			value >>= bits;
			result += bits;
		}
	return result;
}

SEC(SECTION) int act(struct CONTEXT *ctx)
{
#if ACTION >= 8
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 length = end - data, one = 1;

	if (data + 42 > end)
		return DROP;
	__u32 address = *(__u32 *)(data + 26);
	struct pair pair = { .address = address };

	__builtin_memcpy(&pair.name, data + 26, 16);
#endif
#if ACTION == 9
	__u32 key = 0;
#elif ACTION == 10
	__u32 key = address;
#elif ACTION == 11
	struct name key = pair.name;
#elif ACTION == 12
	struct pair key = pair;
#elif ACTION == 15
	__u32 key = log2(length);
#elif ACTION == 16
	__u64 now = bpf_ktime_get_ns(), *start;
	__u32 key;

	/* Entry and return of a function: two packets of a sender would be, but here each is both. */
	bpf_map_update_elem(&starts, &address, &now, BPF_ANY);
	start = bpf_map_lookup_elem(&starts, &address);
	if (!start)
		return DROP;
	key = log2(bpf_ktime_get_ns() - *start);
	bpf_map_delete_elem(&starts, &address);
#elif ACTION == 17
	struct bucket key = { .pair = pair, .bucket = log2(length) };
#endif
#if ACTION == 8
	if (length == 0)
		return DROP;
#elif ACTION >= 9 && ACTION <= 17
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	if (count)
		*count += 1;
	else
		bpf_map_update_elem(&counts, &key, &one, BPF_ANY);
#elif ACTION == 18
	__u64 *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return DROP;
	*event = length;
	bpf_ringbuf_submit(event, 0);
#endif
	return PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
