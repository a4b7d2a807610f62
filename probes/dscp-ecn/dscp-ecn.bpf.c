// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* dscp-ecn: counts packets and bytes per DSCP class and ECN mark, and the ECN flags of TCP. */
#include <twinprobe.h>

/* Names of IANA. Metrics show other classes as numbers. */
enum dscp {
	CS0 = 0,
	LE = 1,
	CS1 = 8, AF11 = 10, AF12 = 12, AF13 = 14,
	CS2 = 16, AF21 = 18, AF22 = 20, AF23 = 22,
	CS3 = 24, AF31 = 26, AF32 = 28, AF33 = 30,
	CS4 = 32, AF41 = 34, AF42 = 36, AF43 = 38,
	CS5 = 40, VOICE_ADMIT = 44, NQB = 45, EF = 46,
	CS6 = 48,
	CS7 = 56,
};

/* RFC 3168: not ECN-capable, two codes for capable, congestion experienced. */
enum ecn {
	NOT_ECT,
	ECT_1,
	ECT_0,
	CE,
};

/* A SYN may ask for ECN, and a SYN-ACK may agree. ECE reports congestion, and CWR a smaller window. */
enum ecn_signal {
	SYN,
	SYN_ASKS,
	SYN_ACK,
	SYN_ACK_AGREES,
	ECE,
	CWR,
};

#define FLAG_SYN 0x02
#define FLAG_ACK 0x10
#define FLAG_ECE 0x40
#define FLAG_CWR 0x80

struct class {
	enum dscp dscp;
	enum ecn ecn;
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

TP_PERCPU_HASH(classes, struct class, struct counters, 256);
TP_PERCPU_HASH(signals, enum ecn_signal, __u64, 8);

static __always_inline void signal(enum ecn_signal signal, __u32 frames)
{
	__u64 *count = tp_get(signals, &signal);

	if (count)
		*count += frames;
}

/* A packet may stand for several frames. All have ECE, but only the first has CWR. */
static __always_inline void tcp_signals(__u8 flags, __u32 frames)
{
	int asks = flags & FLAG_ECE;

	if ((flags & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN) {
		signal(asks && flags & FLAG_CWR ? SYN_ASKS : SYN, 1);
	} else if (flags & FLAG_SYN) {
		signal(asks ? SYN_ACK_AGREES : SYN_ACK, 1);
	} else {
		if (asks)
			signal(ECE, frames);
		if (flags & FLAG_CWR)
			signal(CWR, 1);
	}
}

TP_PROBE(count_classes, packet)
{
	struct class class = {};
	__u32 frames;

	tp_parse(packet);
	if (!packet->version)
		return TP_PASS;
	class.dscp = packet->tos >> 2;
	class.ecn = packet->tos & 3;
	frames = tp_segments(packet);
	tp_count_frames(classes, &class, frames, tp_length(packet));
	if (packet->protocol == IPPROTO_TCP && packet->tcp_flags & (FLAG_SYN | FLAG_ECE | FLAG_CWR))
		tcp_signals(packet->tcp_flags, frames);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
