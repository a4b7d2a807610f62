/* The offsets of headers in the packet, for sources that take a header's address for a number: `(u64)header`. A header is a copy
 * in host order, with its offset behind it. The daemon makes a macro of the header's name, TBCC_NAMED(name, level, line), and says
 * for each line of the source that has the name what it means there: TBCC_LINE_name_line is TBCC_AT or TBCC_HERE, behind a mark.
 * This header comes before all others, which use the same names for other things. */
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
/* In the body of a macro, or in the arguments of one that go on in the next line. */
#define TBCC_UNKNOWN(name) twinprobe_needs_the_name_of_this_header_outside_of_macros

#define TBCC_HERE(name) name
/* A pointer, so that `sizeof(*header)` stays what it is. */
#define TBCC_AT(name) ((__typeof__(name))*(u64 *)((u8 *)(name) + TBCC_BEHIND(__typeof__(*(name)))))
#define TBCC_BEHIND(type) __builtin_offsetof(TBCC_WITH_OFFSET(type), twinprobe_offset)
#define TBCC_WITH_OFFSET(type) struct { type twinprobe_header; u64 twinprobe_offset; }

#endif
