// Headers for user space that include the C library's, and those of clang.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/bpf.h>
#include <linux/icmp.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/if_tunnel.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

uint64_t packets;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	bool any = ctx->data < ctx->data_end;

	if (any)
		__sync_fetch_and_add(&packets, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
