/* Tables of programs. BCC's programs jump to each other by slots of a table that user space has filled. Here the configuration says
 * which function of the source stands in which slot, and all of them are functions of one program: a call ends the function that
 * it stands in, with the number of the next one as its result, and the entry point calls that one. The daemon defines
 * TWINPROBE_CALLS_NAME for each table that has functions: a mark, then a TBCC_SLOT for each slot, and
 * TWINPROBE_PROGRAMS(X): X(number, function, type of its context) for each function but the entry point, whose number is 0. */
#ifndef TWINPROBE_BCC_CALLS_H
#define TWINPROBE_BCC_CALLS_H

#define TBCC_HAS_PROGRAMS(name) TBCC_IS_MARK(TWINPROBE_CALLS_##name)

/* Above the bits of a verdict. */
#define TBCC_NEXT(number) ((u64)((number) + 1) << 32)

#define TBCC_SLOT(slot, number) \
	_Static_assert(slot < twinprobe_slots, "the field calls has a function for slot " #slot ", which this table does not have"); \
	case slot: \
		twinprobe_next = TBCC_NEXT(number); \
		break;

/* The function ends by the instructions that the compiler does not see, from wherever the call has been inlined to. Where the slot is empty,
 * it goes on. */
#define TBCC_CALL(size, ...) TBCC_CALL_(size, __VA_ARGS__)
#define TBCC_CALL_(size, mark, one, slots) \
	enum { twinprobe_slots = (size) }; \
	u64 twinprobe_next = 0; \
	switch (slot) { \
	slots \
	} \
	asm volatile("if %0 == 0 goto +2\n\tr0 = %0\n\texit" : : "r"(twinprobe_next) : "r0", "memory");

/* The most calls that the kernel allows for a packet. */
#define TBCC_MAX_CALLS 33

#endif
