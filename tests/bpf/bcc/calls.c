// Functions that call each other through tables of programs. Byte 14 of a packet is the slot.
#include <bcc/proto.h>

BPF_ARRAY(seen, u64, 16);
BPF_PROG_ARRAY(next, 8);
BPF_TABLE("prog", int, int, empty, 4);

// BCC inlines it. A tail call in it therefore ends the calling function.
static void jump(struct CTXTYPE *ctx, u32 slot)
{
	next.call(ctx, slot);
	seen.increment(7);
}

int first(struct CTXTYPE *ctx)
{
	seen.increment(0);
	next.call(ctx, 7);
	empty.call(ctx, 1);
	seen.increment(1);
	jump(ctx, load_byte(ctx, 14));
	seen.increment(8);
	return 0;
}

int again(struct CTXTYPE *ctx)
{
	seen.increment(2);
	next.call(ctx, 0);
	seen.increment(3);
	return 0;
}

int second(struct CTXTYPE *ctx)
{
	seen.increment(4);
	next.call(ctx, 2);
	seen.increment(5);
	return 0;
}

int third(void *ctx)
{
	seen.increment(6);
	return 0;
}
