// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * inter-arrival: measures times between packets, on the interface and within each flow.
 *
 *	FLOWS=n		size of the table of flows, a power of two (default 8192)
 */
#include <twinprobe.h>

#ifndef FLOWS
#define FLOWS 8192
#endif

TP_HISTOGRAM_SUM(gaps);
TP_HISTOGRAM_SUM(flow_gaps);
/* A flow and the time of its last packet. */
struct flow_time {
	__u64 flow;		/* hash of the flow */
	__u64 time;
};

/*
 * Times of the last packets: of all packets, and per flow at the index of its hash. Both twins share these two maps,
 * because no metric reads them.
 */
TP_ARRAY(last, __u64, 1);
TP_ARRAY(flow_last, struct flow_time, FLOWS);

/* The difference is negative if another CPU stored a later time. */
static __always_inline __u64 since(__u64 before, __u64 now)
{
	return now > before ? now - before : 0;
}

TP_PROBE(measure_gaps, packet)
{
	__u64 *all = tp_at_index(last, 0), hash, now = tp_now();
	struct flow_time *place;
	struct tp_flow flow;

	TP_SEES(packets);
	if (!all)
		return TP_PASS;
	if (*all)
		tp_histogram_sum(gaps, since(*all, now));
	*all = now;

	tp_parse(packet);
	if (!tp_flow(packet, &flow))
		return TP_PASS;
	hash = tp_hash(&flow, sizeof(flow), 0);
	place = tp_at_index(flow_last, hash & (FLOWS - 1));
	if (!place)
		return TP_PASS;
	if (place->flow == hash)
		tp_histogram_sum(flow_gaps, since(place->time, now));
	place->flow = hash;
	place->time = now;
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
