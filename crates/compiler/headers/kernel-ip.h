/* The parts of the kernel's <net/ip.h> that programs for packets use. */
#ifndef TWINPROBE_KERNEL_IP_H
#define TWINPROBE_KERNEL_IP_H

#include <linux/ip.h>
#include <bpf/bpf_endian.h>

/* Tells whether a packet is a fragment: it has an offset, or more fragments follow. */
#define ip_is_fragment(ip) (((ip)->frag_off & bpf_htons(0x3fff)) != 0)

#endif
