/* The entry point of the object, which calls the source's function. The daemon says which that is:
 * TWINPROBE_ENTRY its name, TWINPROBE_CONTEXT the struct that it takes a pointer to, TWINPROBE_METADATA whether it is handler() or
 * handle_rx(), TWINPROBE_TAKES_METADATA whether that takes a pointer to struct pkt_metadata too. */
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
#define TBCC_SECTION "xdp"
#define TBCC_LENGTH(ctx) ((u32)((ctx)->data_end - (ctx)->data))
#define TBCC_MARK_OF(ctx) 0
#else
#define TBCC_SECTION "tc"
#define TBCC_LENGTH(ctx) ((ctx)->len)
#define TBCC_MARK_OF(ctx) ((ctx)->mark)
#endif

#define TBCC_STRING(x) TBCC_STRING_(x)
#define TBCC_STRING_(x) #x

#if TWINPROBE_METADATA
static __always_inline int TWINPROBE_ENTRY(TBCC_PARAMETERS) __asm__("twinprobe.entry");
#else
int TWINPROBE_ENTRY(TBCC_PARAMETERS) __asm__("twinprobe.entry");
#endif

/* The program has the name of the source's function. */
SEC(TBCC_SECTION) int twinprobe_entry(struct TWINPROBE_CONTEXT *ctx) __asm__(TBCC_STRING(TWINPROBE_ENTRY));
int twinprobe_entry(struct TWINPROBE_CONTEXT *ctx)
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
	int verdict = TWINPROBE_ENTRY(TBCC_ARGUMENTS);

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

static const char twinprobe_license[] SEC("license") = "GPL";
#endif

#endif
