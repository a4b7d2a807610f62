/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hook: tc. Angle brackets include headers of the project and of the system from one folder. The first include has
 * the path of kernel samples. */
#include <uapi/linux/bpf.h>
#include <bpf/ctx/context.h>
#include <bpf/bpf_helpers.h>
#include "lib/counters.h"

SEC("tc/entry")
int from_device(struct context *ctx)
{
	count(ctx->len);
	return GO_ON;
}

char LICENSE[] SEC("license") = "GPL";
