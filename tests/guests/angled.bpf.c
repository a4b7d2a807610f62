/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hook: tc. The project's own headers in angle brackets, beside the system's in the same folder, and a header of the kernel as its samples name
 * it. */
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
