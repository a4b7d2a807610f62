/* The names that sources for BCC expect, included before a source. Its own names begin with twinprobe_ or TBCC_. */
#ifndef TWINPROBE_BCC_DIALECT_H
#define TWINPROBE_BCC_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <linux/version.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef unsigned char u_char;
typedef unsigned short u_short;
typedef unsigned int u_int;
typedef unsigned long u_long;
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
typedef long ssize_t;

/* The target of the compilation, as a number. */
#ifdef TWINPROBE_XDP
#define TBCC_XDP 1
#else
#define TBCC_XDP 0
#endif
#ifdef TWINPROBE_INGRESS
#define TBCC_INGRESS 1
#else
#define TBCC_INGRESS 0
#endif

/* The context of the hook, unless the configuration's `defines` say otherwise. */
#ifndef CTXTYPE
#if TBCC_XDP
#define CTXTYPE xdp_md
#else
#define CTXTYPE __sk_buff
#endif
#endif

/* The kernel's own names for the functions of bpf_endian.h. */
#define htons(x) bpf_htons(x)
#define ntohs(x) bpf_ntohs(x)
#define htonl(x) bpf_htonl(x)
#define ntohl(x) bpf_ntohl(x)
#define cpu_to_be16(x) bpf_htons(x)
#define be16_to_cpu(x) bpf_ntohs(x)
#define cpu_to_be32(x) bpf_htonl(x)
#define be32_to_cpu(x) bpf_ntohl(x)
#define cpu_to_be64(x) bpf_cpu_to_be64(x)
#define be64_to_cpu(x) bpf_be64_to_cpu(x)
#define __constant_htons(x) bpf_htons(x)
#define __constant_ntohs(x) bpf_ntohs(x)
#define __constant_htonl(x) bpf_htonl(x)
#define __constant_ntohl(x) bpf_ntohl(x)

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif
#ifndef memcpy
#define memcpy(to, from, n) __builtin_memcpy(to, from, n)
#define memset(to, byte, n) __builtin_memset(to, byte, n)
#define memmove(to, from, n) __builtin_memmove(to, from, n)
#define memcmp(a, b, n) __builtin_memcmp(a, b, n)
#endif
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define BIT(n) (1UL << (n))
#define PAGE_SIZE 4096
#ifndef KERNEL_VERSION
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
#endif
#define CUR_CPU_IDENTIFIER BPF_F_CURRENT_CPU
#ifndef IP_MF
#define IP_CE 0x8000
#define IP_DF 0x4000
#define IP_MF 0x2000
#define IP_OFFSET 0x1fff
#endif
#ifndef VLAN_HLEN
#define VLAN_HLEN 4
#endif

#define lock_xadd(to, n) ((void)__sync_fetch_and_add(to, n))
#define BCC_SEC(name) SEC(name)

/* The number of the highest bit of a number; 0 for 0. Each branch would double the paths that the verifier checks. */
static __always_inline unsigned int twinprobe_highest_bit(u64 v)
{
	v |= v >> 1;
	v |= v >> 2;
	v |= v >> 4;
	v |= v >> 8;
	v |= v >> 16;
	v |= v >> 32;
	return __builtin_popcountll(v >> 1);
}

static __always_inline unsigned int bpf_log2(unsigned int v)
{
	return twinprobe_highest_bit(v);
}

/* The slot of a value in a BPF_HISTOGRAM: 1 for 0 and 1, 2 for 2 and 3, 3 for 4 to 7. */
static __always_inline unsigned int bpf_log2l(unsigned long v)
{
	return twinprobe_highest_bit(v) + 1;
}

static __always_inline
__attribute__((deprecated("what it prints goes to the kernel's trace, where no client finds it; BPF_PERF_OUTPUT(events) "
			  "and events.perf_submit() send events to the clients of a metric with \"map\": \"events\"")))
void twinprobe_trace_printk(void) {}
#define bpf_trace_printk(format, ...) ({ \
	static const char twinprobe_format[] = format; \
	twinprobe_trace_printk(); \
	(bpf_trace_printk)(twinprobe_format, sizeof(twinprobe_format), ##__VA_ARGS__); \
})

#include <bcc/tables.h>
#include <bcc/packet.h>
#include <bcc/unsupported.h>
#if TWINPROBE_METADATA
#include <bcc/conventions.h>
#endif
#include <bcc/entry.h>

#endif
