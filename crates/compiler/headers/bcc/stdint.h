/* The integer types of C. Headers of the host's C library only fit the host. */
#ifndef TWINPROBE_BCC_STDINT_H
#define TWINPROBE_BCC_STDINT_H

#include <linux/types.h>

typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s8 int8_t;
typedef __s16 int16_t;
typedef __s32 int32_t;
typedef __s64 int64_t;
/* The kernel has these names, too. */
typedef __u8 u_int8_t;
typedef __u16 u_int16_t;
typedef __u32 u_int32_t;
typedef __u64 u_int64_t;
typedef unsigned long uintptr_t;
typedef long intptr_t;

#ifndef TWINPROBE_OWN_LIMITS
#define UINT8_MAX 0xff
#define UINT16_MAX 0xffff
#define UINT32_MAX 0xffffffffU
#define UINT64_MAX 0xffffffffffffffffULL
#define INT32_MAX 0x7fffffff
#define INT64_MAX 0x7fffffffffffffffLL
#endif

#endif
