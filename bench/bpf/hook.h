// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The names of a program's hook. Each program that runs at both hooks includes this file: the hook is XDP, or
// TC if TC is defined. SECTION is the loader's name for the section of TC; that of aya is `classifier`.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#ifdef TC
#ifndef SECTION
#define SECTION "tc"
#endif
#define CONTEXT __sk_buff
#define PASS (-1)
#define DROP 2
#define LOAD bpf_skb_load_bytes
#else
#define SECTION "xdp"
#define CONTEXT xdp_md
#define PASS 2
#define DROP 1
#define LOAD bpf_xdp_load_bytes
#endif
