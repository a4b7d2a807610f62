/* The conventions of DeChainy, handler(ctx, md), and of Polycube's dynmon, handle_rx(ctx, md). */
#ifndef TWINPROBE_BCC_CONVENTIONS_H
#define TWINPROBE_BCC_CONVENTIONS_H

#include <bcc/proto.h>

/* A source may define these structs itself. */
#ifndef TWINPROBE_DEFINES_iphdr
#include <linux/ip.h>
#endif
#ifndef TWINPROBE_DEFINES_tcphdr
#include <linux/tcp.h>
#endif
#ifndef TWINPROBE_DEFINES_udphdr
#include <linux/udp.h>
#endif
#ifndef TWINPROBE_DEFINES_icmphdr
#include <linux/icmp.h>
#endif
#ifndef TWINPROBE_DEFINES_eth_hdr
struct eth_hdr {
	__be64 dst : 48;
	__be64 src : 48;
	__be16 proto;
} __attribute__((packed));
#endif
#ifndef TWINPROBE_DEFINES_lpm_key
struct lpm_key {
	u32 netmask_len;
	u32 ip;
} __attribute__((packed));
#endif
#define ECHO_REQUEST 8
#define ECHO_REPLY 0

/* Facts about a packet, with the field names of both projects. All ids are 0. */
struct pkt_metadata {
	u32 ifindex;
	u32 length;
	u8 ingress;
	u8 xdp;
	u16 program_id;
	u16 plugin_id;
	u16 probe_id;
	u16 cube_id;
	u16 in_port;
	u32 packet_len;
	u32 traffic_class;
	u16 reason;
	u32 md[3];
};

#ifndef INGRESS
#define INGRESS TBCC_INGRESS
#endif
#ifndef PTYPE
#define PTYPE (!TBCC_INGRESS)
#endif
#ifndef POLYCUBE_PROGRAM_TYPE
#define POLYCUBE_PROGRAM_TYPE (!TBCC_INGRESS)
#endif
#ifndef XDP
#define XDP TBCC_XDP
#endif
#if TBCC_XDP && !defined POLYCUBE_XDP
#define POLYCUBE_XDP 1
#endif
#ifndef PROGRAM_ID
#define PROGRAM_ID 0
#endif
#ifndef PLUGIN_ID
#define PLUGIN_ID 0
#endif
#ifndef PROBE_ID
#define PROBE_ID 0
#endif
#ifndef CUBE_ID
#define CUBE_ID 0
#endif
#ifndef MAX_PROGRAMS_PER_HOOK
#define MAX_PROGRAMS_PER_HOOK 32
#endif

#if TBCC_XDP
#define TBCC_PASS XDP_PASS
#define TBCC_DROP XDP_DROP
#define TBCC_REDIRECT XDP_REDIRECT
#define BACK_TX XDP_TX
#else
#define TBCC_PASS TC_ACT_OK
#define TBCC_DROP TC_ACT_SHOT
#define TBCC_REDIRECT TC_ACT_REDIRECT
#endif

/* handler() returns verdicts of the hook, handle_rx() returns numbers that entry.h turns into verdicts. */
#if TWINPROBE_HANDLE_RX
enum { RX_OK, RX_REDIRECT, RX_DROP, RX_RECIRCULATE, RX_ERROR };
#ifndef TWINPROBE_OWN_VERDICTS
enum { PASS = RX_OK, DROP = RX_DROP, REDIRECT = RX_REDIRECT };
#endif
#else
enum { PASS = TBCC_PASS, DROP = TBCC_DROP, REDIRECT = TBCC_REDIRECT };
enum { RX_OK = TBCC_PASS, RX_DROP = TBCC_DROP, RX_REDIRECT = TBCC_REDIRECT };
#endif
/* REDIRECT(eth1) redirects only in enforcing probes. `defines` has the index of the interface as IFINDEX_eth1. */
#if TWINPROBE_ENFORCE
#define REDIRECT(interface) bpf_redirect(IFINDEX_##interface, 0)
#else
#define REDIRECT(interface) REDIRECT
#endif

static __always_inline int pcn_pkt_drop(struct CTXTYPE *ctx, struct pkt_metadata *md)
{
	return RX_DROP;
}

/* The nanoseconds from 1970 to the boot of this host. The daemon sets them when it loads the program. */
static const volatile u64 twinprobe_epoch_base;
#ifndef EPOCH_BASE
#define EPOCH_BASE twinprobe_epoch_base
#endif

static __always_inline u64 twinprobe_time_epoch(struct CTXTYPE *ctx)
{
#if !TBCC_XDP && TBCC_INGRESS
	if (ctx && ctx->tstamp)
		return ctx->tstamp;
#endif
	return EPOCH_BASE + bpf_ktime_get_ns();
}
/* The argument (the context) is optional. */
#define get_time_epoch(...) twinprobe_time_epoch(TBCC_DEFAULT(NULL, ##__VA_ARGS__))

/* The number of the lowest bit that is set; 0 for 0. */
static __always_inline int first_bit_set_pos(u64 x)
{
	return x ? __builtin_popcountll((x & -x) - 1) : 0;
}

/* Messages are events of the map `log_buffer`, whose type is struct twinprobe_log. */
enum { LOG_TRACE = 5, LOG_DEBUG = 10, LOG_INFO = 20, LOG_WARN = 30, LOG_ERR = 40, LOG_CRITICAL = 50, LOG_OFF = 100 };
#ifndef LOG_LEVEL
#define LOG_LEVEL LOG_INFO
#endif
#if TWINPROBE_USES_dp_log
enum { NOTSET = 0, DEBUG = 10, INFO = 20, WARN = 30, WARNING = 30, ERROR = 40, CRITICAL = 50, FATAL = 50 };
#endif
struct twinprobe_log {
	u64 level;
	u64 args[4];
	/* Longer messages are cut off. */
	char message[96];
};
#if TWINPROBE_USES_dp_log || TWINPROBE_USES_pcn_log
BPF_PERF_OUTPUT(log_buffer);
#endif
#define dp_log(severity, text, ...) TBCC_LOG(ctx, severity, text, ##__VA_ARGS__)
#define pcn_log(ctx, severity, text, ...) TBCC_LOG(ctx, severity, text, ##__VA_ARGS__)
#define TBCC_LOG(ctx, severity, text, ...) do { \
	if ((severity) >= LOG_LEVEL) { \
		struct twinprobe_log twinprobe_message = { .level = (severity), .args = { __VA_ARGS__ } }; \
		__builtin_memcpy(twinprobe_message.message, text, \
				 sizeof(text) < sizeof(twinprobe_message.message) ? sizeof(text) : sizeof(twinprobe_message.message) - 1); \
		log_buffer.perf_submit(ctx, &twinprobe_message, sizeof(twinprobe_message)); \
	} \
} while (0)

/* Packets for user space are events of the map `control_plane`: the facts about a packet, then its bytes. */
#if TWINPROBE_USES_pkt_to_controller || TWINPROBE_USES_pcn_pkt_controller
BPF_PERF_OUTPUT(control_plane);

static __always_inline int pkt_to_controller(struct CTXTYPE *ctx, struct pkt_metadata *md)
{
	return control_plane.perf_submit_skb(ctx, md->length, md, sizeof(*md));
}

static __always_inline int pcn_pkt_controller(struct CTXTYPE *ctx, struct pkt_metadata *md, u16 reason)
{
	md->reason = reason;
	return pkt_to_controller(ctx, md);
}
#endif

/* DeChainy's perf buffers with attributes. */
#define BPF_PERF(attribute, name) BPF_PERF_OUTPUT(name)
#define BPF_PERF_SHARED(attribute, name) BPF_PERF_OUTPUT(name)
/* SWAP, EMPTY and EXPORT are snapshot, init and export of a metric in the configuration. */
#define __attributes__(features)

#endif
