// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * sampled-headers: sends the first bytes of one packet in SAMPLE as an event.
 *
 *	SAMPLE=n	one packet in n, at random (default 1000)
 *	RING=n		bytes of the ring buffer, a power of two (default 1048576)
 */
#include <twinprobe.h>

#ifndef SAMPLE
#define SAMPLE 1000
#endif
#ifndef RING
#define RING 1048576
#endif

#define HEADER 128

struct header {
	__u64 time TP_AS(ktime);
	__u32 interface TP_AS(ifindex);
	__u32 length;		/* bytes of the frame */
	__u32 captured;		/* bytes of the packet in `header` */
	__u32 sample;		/* number of packets that this one stands for */
	__u8 header[HEADER] TP_AS(hex);
};

TP_RINGBUF(headers, struct header, RING);

struct counters {
	__u64 packets_total;
	__u64 sampled_total;
};

TP_PERCPU_ARRAY(sampling, struct counters, 1);

#define ADDRESSES 12
#define TAG 4

/* Puts a VLAN tag back into the frame, because the kernel takes it out before TC. */
static __always_inline __u32 copy(const struct tp_packet *packet, __u8 *header)
{
#ifdef TWINPROBE_TC
	struct __sk_buff *context = tp_context(packet);

	if (context->vlan_present) {
		__be16 tag[TAG / 2] = { context->vlan_proto, bpf_htons(context->vlan_tci) };

		tp_copy(packet, 0, header, ADDRESSES);
		__builtin_memcpy(header + ADDRESSES, tag, TAG);
		return tp_copy(packet, ADDRESSES, header + ADDRESSES + TAG, HEADER - ADDRESSES - TAG) + ADDRESSES + TAG;
	}
#endif
	return tp_copy(packet, 0, header, HEADER);
}

TP_PROBE(sample_headers, packet)
{
	struct counters *counters = tp_at_index(sampling, 0);
	struct header *header;

	if (!counters)
		return TP_PASS;
	counters->packets_total++;
	if (!tp_sample(SAMPLE))
		return TP_PASS;
	counters->sampled_total++;
	header = tp_reserve(headers);
	if (!header)
		return TP_PASS;
	header->time = tp_now();
	header->interface = tp_ifindex(packet);
	header->length = tp_length(packet);
	header->sample = SAMPLE;
	header->captured = copy(packet, header->header);
	tp_submit(header);
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
