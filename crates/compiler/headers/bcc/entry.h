/* The entry point of the object, which calls the source's function. The daemon says which that is:
 * TWINPROBE_ENTRY its name, TWINPROBE_CONTEXT the struct that it takes a pointer to, TWINPROBE_METADATA whether it is handler() or
 * handle_rx(), TWINPROBE_TAKES_METADATA whether that takes a pointer to struct pkt_metadata too. */
#ifndef TWINPROBE_BCC_ENTRY_H
#define TWINPROBE_BCC_ENTRY_H

#ifdef TWINPROBE_ENTRY
#if TWINPROBE_TAKES_METADATA
#define TP_PARAMETERS struct TWINPROBE_CONTEXT *ctx, struct pkt_metadata *md
#define TP_ARGUMENTS ctx, &md
#else
#define TP_PARAMETERS struct TWINPROBE_CONTEXT *ctx
#define TP_ARGUMENTS ctx
#endif
#if TWINPROBE_XDP
#define TP_SECTION "xdp"
#define TP_LENGTH(ctx) ((u32)((ctx)->data_end - (ctx)->data))
#define TP_MARK_OF(ctx) 0
#else
#define TP_SECTION "tc"
#define TP_LENGTH(ctx) ((ctx)->len)
#define TP_MARK_OF(ctx) ((ctx)->mark)
#endif

#define TP_STRING(x) TP_STRING_(x)
#define TP_STRING_(x) #x

#if TWINPROBE_METADATA
static __always_inline int TWINPROBE_ENTRY(TP_PARAMETERS) __asm__("twinprobe.entry");
#else
int TWINPROBE_ENTRY(TP_PARAMETERS) __asm__("twinprobe.entry");
#endif

/* The program has the name of the source's function. */
SEC(TP_SECTION) int twinprobe_entry(struct TWINPROBE_CONTEXT *ctx) __asm__(TP_STRING(TWINPROBE_ENTRY));
int twinprobe_entry(struct TWINPROBE_CONTEXT *ctx)
{
#if TWINPROBE_TAKES_METADATA
	struct pkt_metadata md = {
		.ifindex = ctx->ingress_ifindex,
		.length = TP_LENGTH(ctx),
		.ingress = TWINPROBE_INGRESS,
		.xdp = TWINPROBE_XDP,
		.in_port = !TWINPROBE_INGRESS,
		.packet_len = TP_LENGTH(ctx),
		.traffic_class = TP_MARK_OF(ctx),
	};
#endif
	int verdict = TWINPROBE_ENTRY(TP_ARGUMENTS);

#if TWINPROBE_HANDLE_RX
	switch (verdict) {
	case RX_OK:
		return TP_PASS;
	case RX_DROP:
		return TP_DROP;
	case RX_REDIRECT:
		return TP_REDIRECT;
	}
#endif
	return verdict;
}

static const char twinprobe_license[] SEC("license") = "GPL";
#endif

#endif
