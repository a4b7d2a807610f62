// The types of the kernel beside <stdint.h>, which a header that user space shares includes.
#include "vmlinux.h"
#include <stdint.h>
#include <bpf/bpf_helpers.h>

uint64_t bytes;
uintptr_t largest;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	uint_fast32_t length = ctx->data_end - ctx->data;

	__sync_fetch_and_add(&bytes, (int64_t)length);
	largest = UINT16_MAX;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
