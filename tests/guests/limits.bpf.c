// Dialect: bcc. Limits of integers as constants that no kernel header defines.
#include <bcc/helpers.h>
#include <bcc/proto.h>

const uint16_t UINT16_MAX = 0xffff;

BPF_ARRAY(packets, u64, 1);

int see(struct xdp_md *ctx)
{
	int zero = 0;

	if (ctx->data_end - ctx->data < UINT16_MAX)
		packets.increment(zero);
	return XDP_PASS;
}
