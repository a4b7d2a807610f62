// Parts of a buffer on the stack, as long as packet and loader decide, and a record beside the buffer.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MOST 48

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} events SEC(".maps");

const volatile __u32 wanted = 64;
__u64 bytes;

SEC("xdp")
int copy(struct xdp_md *ctx)
{
	__u32 length = ctx->data_end - ctx->data, size = wanted;
	struct bpf_dynptr record;
	__u8 part[MOST] = {};

	if (size > MOST)
		size = MOST;
	if (size > length)
		size = length;
	if (size == 0 || bpf_xdp_load_bytes(ctx, 0, part, size))
		return XDP_PASS;
	if (bpf_ringbuf_reserve_dynptr(&events, size, 0, &record)) {
		bpf_ringbuf_discard_dynptr(&record, 0);
		return XDP_PASS;
	}
	bpf_dynptr_write(&record, 0, part, size, 0);
	bpf_ringbuf_submit_dynptr(&record, 0);
	__sync_fetch_and_add(&bytes, size);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
