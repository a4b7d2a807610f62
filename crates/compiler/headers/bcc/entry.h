/* The entry point of the object, which calls the source's function. The daemon describes that function by macros:
 * TWINPROBE_ENTRY is its name, TWINPROBE_CONTEXT the struct of its context. TWINPROBE_METADATA is true for handler()
 * and handle_rx(), TWINPROBE_TAKES_METADATA if the function also takes a pointer to struct pkt_metadata. */
#ifndef TWINPROBE_BCC_ENTRY_H
#define TWINPROBE_BCC_ENTRY_H

#ifdef TWINPROBE_ENTRY
#if TWINPROBE_TAKES_METADATA
#define TBCC_PARAMETERS struct TWINPROBE_CONTEXT *ctx, struct pkt_metadata *md
#define TBCC_ARGUMENTS ctx, &md
#else
#define TBCC_PARAMETERS struct TWINPROBE_CONTEXT *ctx
#define TBCC_ARGUMENTS ctx
#endif
#if TBCC_XDP
/* The name of the section must differ from all names of functions. */
#define TBCC_SECTION "xdp/bcc"
#define TBCC_LET_PASS XDP_PASS
#define TBCC_LENGTH(ctx) ((u32)((ctx)->data_end - (ctx)->data))
#define TBCC_MARK_OF(ctx) 0
#else
#define TBCC_SECTION "tc/bcc"
#define TBCC_LET_PASS TC_ACT_OK
#define TBCC_LENGTH(ctx) ((ctx)->len)
#define TBCC_MARK_OF(ctx) ((ctx)->mark)
#endif

#define TBCC_STRING(x) TBCC_STRING_(x)
#define TBCC_STRING_(x) #x

/* A call can end a function only if the call is inlined into it. */
#if TWINPROBE_METADATA || defined TWINPROBE_PROGRAMS
static __always_inline int TWINPROBE_ENTRY(TBCC_PARAMETERS) __asm__("twinprobe.entry");
#else
int TWINPROBE_ENTRY(TBCC_PARAMETERS) __asm__("twinprobe.entry");
#endif

/* The verdict of the hook for a function's result. */
static __always_inline int twinprobe_verdict(int verdict)
{
#if TWINPROBE_HANDLE_RX
	switch (verdict) {
	case RX_OK:
		return TBCC_PASS;
	case RX_DROP:
		return TBCC_DROP;
	case RX_REDIRECT:
		return TBCC_REDIRECT;
	}
#endif
	return verdict;
}

static __always_inline int twinprobe_first(struct TWINPROBE_CONTEXT *ctx)
{
#if TWINPROBE_TAKES_METADATA
	struct pkt_metadata md = {
		.ifindex = ctx->ingress_ifindex,
		.length = TBCC_LENGTH(ctx),
		.ingress = TBCC_INGRESS,
		.xdp = TBCC_XDP,
		.in_port = !TBCC_INGRESS,
		.packet_len = TBCC_LENGTH(ctx),
		.traffic_class = TBCC_MARK_OF(ctx),
	};
#endif
	return twinprobe_verdict(TWINPROBE_ENTRY(TBCC_ARGUMENTS));
}

/* The program has the name of the source's function. */
SEC(TBCC_SECTION) int twinprobe_entry(struct TWINPROBE_CONTEXT *ctx) __asm__(TBCC_STRING(TWINPROBE_ENTRY));

#ifndef TWINPROBE_PROGRAMS
int twinprobe_entry(struct TWINPROBE_CONTEXT *ctx)
{
	return twinprobe_first(ctx);
}
#else
/* The verifier checks each of these functions once, like a program. Their assembly hides results from the compiler and
 * keeps an unused context. No macro makes the first function of this file, else clang 14 would not embed it. */
__attribute__((noinline)) u64 twinprobe_call(struct TWINPROBE_CONTEXT *ctx)
{
	u64 verdict = (u32)twinprobe_first(ctx);

	asm volatile("" : "+r"(verdict) : "r"(ctx));
	return verdict;
}

#define TBCC_DECLARE(number, name, context) static __always_inline int name(context *) __asm__("twinprobe." #name);
#define TBCC_DEFINE(number, name, context) \
__attribute__((noinline)) u64 twinprobe_call_##name(struct TWINPROBE_CONTEXT *ctx) \
{ \
	u64 verdict = (u32)twinprobe_verdict(name((context *)ctx)); \
\
	asm volatile("" : "+r"(verdict) : "r"(ctx)); \
	return verdict; \
}
#define TBCC_CASE(number, name, context) case number + 1: next = twinprobe_call_##name(ctx); break;

TWINPROBE_PROGRAMS(TBCC_DECLARE)
TWINPROBE_PROGRAMS(TBCC_DEFINE)

/* After too many calls, the packet passes. */
int twinprobe_entry(struct TWINPROBE_CONTEXT *ctx)
{
	u64 next = twinprobe_call(ctx);

	for (int calls = 0; calls < TBCC_MAX_CALLS && next >> 32; calls++) {
		switch (next >> 32) {
		case 1: next = twinprobe_call(ctx); break;
		TWINPROBE_PROGRAMS(TBCC_CASE)
		}
	}
	return next >> 32 ? TBCC_LET_PASS : next;
}
#endif

static const char twinprobe_license[] SEC("license") = "GPL";
#endif

#endif
