// A helper function that reads any memory of the kernel.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int print(struct xdp_md *ctx)
{
	static const char format[] = "%d";
	__u64 length = ctx->data_end - ctx->data;
	char text[16];

	bpf_snprintf(text, sizeof(text), format, &length, sizeof(length));
	return text[0] == '6' ? XDP_PASS : XDP_ABORTED;
}

char LICENSE[] SEC("license") = "GPL";
