/* Names that sources take for granted. The compiler tells which of them a source uses and does not define. */
#ifdef TWINPROBE_NEEDS_HELPERS
/* Other headers of libbpf include it since version 1.5. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#endif

#ifdef TWINPROBE_NEEDS_HELPERS_BESIDE_TYPES
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#endif

#ifdef TWINPROBE_NEEDS_MAP_DEF
/* libbpf had it before version 1.0. */
struct bpf_map_def {
	unsigned int type;
	unsigned int key_size;
	unsigned int value_size;
	unsigned int max_entries;
	unsigned int map_flags;
};
#endif

#ifdef TWINPROBE_NEEDS_ANNOTATION
#define BPF_ANNOTATE_KV_PAIR(name, type_key, type_val)                                                     \
	struct ____btf_map_##name {                                                                            \
		type_key key;                                                                                      \
		type_val value;                                                                                    \
	};                                                                                                     \
	struct ____btf_map_##name __attribute__((section(".maps." #name), used)) ____btf_map_##name = {}
#endif

#ifdef TWINPROBE_NEEDS_ELF_MAP
#include <bpf_elf.h>
#endif

#ifdef TWINPROBE_NEEDS_PINS
/* The ways in which iproute2 pins a map; maps belong to their probe here. */
#define PIN_NONE 0
#define PIN_OBJECT_NS 1
#define PIN_GLOBAL_NS 2
#endif

#ifdef TWINPROBE_NEEDS_TCX
/* The kernel's API has it since Linux 6.6. */
#include <linux/version.h>
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
enum tcx_action_base {
	TCX_NEXT = -1,
	TCX_PASS = 0,
	TCX_DROP = 2,
	TCX_REDIRECT = 7,
};
#endif
#endif

#ifdef TWINPROBE_NEEDS_LIKELY
/* Headers inside the kernel have it. */
#define likely(x) __builtin_expect(!!(x), 1)
#endif

#ifdef TWINPROBE_NEEDS_UNLIKELY
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

#ifdef TWINPROBE_NEEDS_MAX
#define max(a, b) ({ __typeof__(a) one__ = (a), other__ = (b); one__ > other__ ? one__ : other__; })
#endif

#ifdef TWINPROBE_NEEDS_MIN
#define min(a, b) ({ __typeof__(a) one__ = (a), other__ = (b); one__ < other__ ? one__ : other__; })
#endif

#ifdef TWINPROBE_NEEDS_CPU_TO_BE
#include <bpf/bpf_endian.h>
#define cpu_to_be16(x) bpf_htons(x)
#define cpu_to_be32(x) bpf_htonl(x)
#endif

#ifdef TWINPROBE_NEEDS_BE_TO_CPU
#include <bpf/bpf_endian.h>
#define be16_to_cpu(x) bpf_ntohs(x)
#define be32_to_cpu(x) bpf_ntohl(x)
#endif

#ifdef TWINPROBE_NEEDS_TYPES
/* The source includes libbpf's header first. */
#include <linux/types.h>
#endif

#ifdef TWINPROBE_NEEDS_FORCE
/* A mark for the kernel's own checker. */
#define __force
#endif

#ifdef TWINPROBE_NEEDS_FOR
/* libbpf has it since version 1.2, and the kernel's API the structure since Linux 6.4. */
struct twinprobe_numbers {
	unsigned long long opaque;
} __attribute__((aligned(8)));

#define TWINPROBE_OF_KERNEL(name) __asm__(name) __attribute__((weak, section(".ksyms")))
extern int twinprobe_first(struct twinprobe_numbers *numbers, int start, int end)
	TWINPROBE_OF_KERNEL("bpf_iter_num_new");
extern int *twinprobe_next(struct twinprobe_numbers *numbers) TWINPROBE_OF_KERNEL("bpf_iter_num_next");
extern void twinprobe_last(struct twinprobe_numbers *numbers) TWINPROBE_OF_KERNEL("bpf_iter_num_destroy");

#define TWINPROBE_LOOP(start, end, condition)                                                              \
	for (struct twinprobe_numbers numbers__ __attribute__((cleanup(twinprobe_last))),                  \
	     *begun__ __attribute__((unused)) = (twinprobe_first(&numbers__, start, end), &numbers__);     \
	     ({ int *next__ = twinprobe_next(&numbers__); condition; });)
#define bpf_for(i, start, end)                                                                             \
	TWINPROBE_LOOP(start, end, next__ && ((i) = *next__, (i) >= (start) && (i) < (end)))
#define bpf_repeat(count) TWINPROBE_LOOP(0, count, next__)
#endif

/* Headers inside the kernel have these types. */
#ifdef TWINPROBE_NEEDS_u8
#include <linux/types.h>
typedef __u8 u8;
#endif
#ifdef TWINPROBE_NEEDS_u16
#include <linux/types.h>
typedef __u16 u16;
#endif
#ifdef TWINPROBE_NEEDS_u32
#include <linux/types.h>
typedef __u32 u32;
#endif
#ifdef TWINPROBE_NEEDS_u64
#include <linux/types.h>
typedef __u64 u64;
#endif
#ifdef TWINPROBE_NEEDS_s8
#include <linux/types.h>
typedef __s8 s8;
#endif
#ifdef TWINPROBE_NEEDS_s16
#include <linux/types.h>
typedef __s16 s16;
#endif
#ifdef TWINPROBE_NEEDS_s32
#include <linux/types.h>
typedef __s32 s32;
#endif
#ifdef TWINPROBE_NEEDS_s64
#include <linux/types.h>
typedef __s64 s64;
#endif

#ifdef TWINPROBE_NEEDS_STDINT
#include <stdint.h>
#endif

#ifdef TWINPROBE_NEEDS_STDBOOL
/* C23 has the names without a header. */
#include <stdbool.h>
#endif

#ifdef TWINPROBE_NEEDS_NULL
#include <stddef.h>
#endif

#ifdef TWINPROBE_NEEDS_ORDER
#include <bpf/bpf_endian.h>
#define htons bpf_htons
#define ntohs bpf_ntohs
#define htonl bpf_htonl
#define ntohl bpf_ntohl
#endif

#ifdef TWINPROBE_NEEDS_PROTOCOLS
#include <linux/in.h>
#endif

/* Headers inside the kernel include these. */
#ifdef TWINPROBE_NEEDS_ETHER
#include <linux/if_ether.h>
#endif
#ifdef TWINPROBE_NEEDS_TCP
#include <linux/tcp.h>
#endif

#ifdef TWINPROBE_NEEDS_UDP
#include <linux/udp.h>
#endif

#ifdef TWINPROBE_NEEDS_VLAN_HDR
#include <linux/types.h>
struct vlan_hdr {
	__be16 h_vlan_TCI;
	__be16 h_vlan_encapsulated_proto;
};
#endif
