/* Tables of programs. In BCC, user space fills the slots, and programs tail-call them. Here the configuration maps
 * slots to functions of the source, which are all in one program. A call ends its function and returns the number of
 * the next function, which the entry point then calls. The daemon defines TWINPROBE_CALLS_NAME for each table that has
 * functions: a mark, then a TBCC_SLOT for each slot. It also defines TWINPROBE_PROGRAMS(X): X(number, function, type of
 * its context) for each function but the entry point, which has number 0. */
#ifndef TWINPROBE_BCC_CALLS_H
#define TWINPROBE_BCC_CALLS_H

#define TBCC_HAS_PROGRAMS(name) TBCC_IS_MARK(TWINPROBE_CALLS_##name)

/* The lower 32 bits have a verdict. */
#define TBCC_NEXT(number) ((u64)((number) + 1) << 32)

#define TBCC_SLOT(slot, number) \
	_Static_assert(slot < twinprobe_slots, "the field calls has a function for slot " #slot ", which this table does not have"); \
	case slot: \
		twinprobe_next = TBCC_NEXT(number); \
		break;

/* Assembly ends the calling function, because the call is inlined and `return` would end only the call. If the slot is
 * empty, the function continues. */
#define TBCC_CALL(size, ...) TBCC_CALL_(size, __VA_ARGS__)
#define TBCC_CALL_(size, mark, one, slots) \
	enum { twinprobe_slots = (size) }; \
	u64 twinprobe_next = 0; \
	switch (slot) { \
	slots \
	} \
	asm volatile("if %0 == 0 goto +2\n\tr0 = %0\n\texit" : : "r"(twinprobe_next) : "r0", "memory");

/* The kernel's limit of tail calls, as in BCC. */
#define TBCC_MAX_CALLS 33

#endif
