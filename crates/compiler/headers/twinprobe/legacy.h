/* Names that sources take for granted. The compiler tells which of them a source uses and does not define. */
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

#ifdef TWINPROBE_NEEDS_INTEGERS
/* Headers inside the kernel have these types. */
#include <linux/types.h>
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
#endif

#ifdef TWINPROBE_NEEDS_STDINT
#include <stdint.h>
#endif

#ifdef TWINPROBE_NEEDS_STDBOOL
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
