/* The offsets of headers in the packet, for sources that convert a header pointer to a number: `(u64)header`. It
 * points to a copy in host order, with the offset behind the copy. The daemon makes the header's name a macro,
 * TBCC_NAMED(name, level, line). For each source line with this name, it defines TBCC_LINE_name_line: a mark, then
 * TBCC_AT (the offset) or TBCC_HERE (the pointer).
 * This file comes first, because others use the same names for other things. */
#ifndef TWINPROBE_BCC_OFFSETS_H
#define TWINPROBE_BCC_OFFSETS_H

#define TBCC_HAS_OFFSETS 1

#define TBCC_NAMED(name, level, line) TBCC_NAMED_(name, level, line)
#define TBCC_NAMED_(name, level, line) TBCC_PICK(TBCC_LEVEL_##level, TBCC_ELSEWHERE)(name, line)
#define TBCC_LEVEL_0 ~, TBCC_IN_SOURCE
#define TBCC_PICK(...) TBCC_PICKED(__VA_ARGS__, )
#define TBCC_PICKED(first, second, ...) second

#define TBCC_ELSEWHERE(name, line) name
#define TBCC_IN_SOURCE(name, line) TBCC_PICK(TBCC_LINE_##name##_##line, TBCC_UNKNOWN)(name)
/* The name is in a macro's body, or in arguments of several lines. */
#define TBCC_UNKNOWN(name) twinprobe_needs_the_name_of_this_header_outside_of_macros

#define TBCC_HERE(name) name
/* The type is a pointer, so that `sizeof(*header)` does not change. */
#define TBCC_AT(name) ((__typeof__(name))*(u64 *)((u8 *)(name) + TBCC_BEHIND(__typeof__(*(name)))))
#define TBCC_BEHIND(type) __builtin_offsetof(TBCC_WITH_OFFSET(type), twinprobe_offset)
#define TBCC_WITH_OFFSET(type) struct { type twinprobe_header; u64 twinprobe_offset; }

#endif
