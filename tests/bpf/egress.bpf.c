// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Redirects packets from TC ingress to interface IFINDEX, through its TC egress hook.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("classifier")
int forward(struct __sk_buff *skb)
{
	return bpf_redirect(IFINDEX, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
