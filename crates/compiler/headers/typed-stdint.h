/* The integer types of C beside those of a kernel: the same types, and the names that a kernel does not have. */
#ifndef TWINPROBE_TYPED_STDINT_H
#define TWINPROBE_TYPED_STDINT_H

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
/* unistd.h has it as well, and of 4 bytes where the compiler is for no host. */
#ifndef __intptr_t_defined
#define __intptr_t_defined
typedef long intptr_t;
#endif
typedef unsigned long uintptr_t;
typedef long long intmax_t;
typedef unsigned long long uintmax_t;
typedef int8_t int_least8_t, int_fast8_t;
typedef int16_t int_least16_t;
typedef int32_t int_least32_t;
typedef int64_t int_least64_t, int_fast16_t, int_fast32_t, int_fast64_t;
typedef uint8_t uint_least8_t, uint_fast8_t;
typedef uint16_t uint_least16_t;
typedef uint32_t uint_least32_t;
typedef uint64_t uint_least64_t, uint_fast16_t, uint_fast32_t, uint_fast64_t;

#define INT8_MIN (-128)
#define INT16_MIN (-32767 - 1)
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT8_MAX 127
#define INT16_MAX 32767
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807LL
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295U
#define UINT64_MAX 18446744073709551615ULL
#define INTPTR_MAX INT64_MAX
#define UINTPTR_MAX UINT64_MAX
#define SIZE_MAX UINT64_MAX
#define INT32_C(number) number
#define UINT32_C(number) number##U
#define INT64_C(number) number##LL
#define UINT64_C(number) number##ULL

#endif
