// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Traffic generator. BPF_PROG_TEST_RUN runs it on live frames. It gives each frame the next source address and port,
// and redirects it to an interface. Macros describe the frames:
//   IFINDEX            the interface that sends
//   ADDRESSES, PORTS   packet n has address n % ADDRESSES and port n / ADDRESSES % PORTS
//   BASE_ADDRESS, BASE_PORT   the first address and port in host order
//   TEMPLATE           the first 60 bytes; each packet writes them, because frames are recycled
//   ADDRESS, PORT      offsets of source address (its low 32 bits) and port; undefined: they stay
//   IP_CHECKSUM, IP_SUM, L4_CHECKSUM, L4_SUM   offsets of checksums, and the sums of the constant bytes
//   PSEUDO_HEADER, ZERO_MEANS_NONE   the L4 checksum covers the source address; 0xffff replaces 0 (UDP)
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define TEMPLATE_SIZE 60

static const __u8 template[TEMPLATE_SIZE] __attribute__((aligned(8))) = { TEMPLATE };

struct state {
	__u64 sent;
	__u32 address;
	__u32 port;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct state);
	__uint(max_entries, 1);
} state SEC(".maps");

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct state *s = bpf_map_lookup_elem(&state, &zero);

	if (!s || data + TEMPLATE_SIZE > data_end)
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < TEMPLATE_SIZE / 4; i++)
		((__u32 *)data)[i] = ((const __u32 *)template)[i];
#ifdef ADDRESS
	__u32 address = bpf_htonl(BASE_ADDRESS + s->address);

	*(__u32 *)(data + ADDRESS) = address;
#ifdef IP_CHECKSUM
	__u16 ip_checksum = fold(IP_SUM + (address & 0xffff) + (address >> 16));

	*(__u16 *)(data + IP_CHECKSUM) = ip_checksum;
#endif
#ifdef PORT
	__u16 port = bpf_htons(BASE_PORT + s->port);

	*(__u16 *)(data + PORT) = port;
#endif
#ifdef L4_CHECKSUM
	__u32 sum = L4_SUM + port;
#ifdef PSEUDO_HEADER
	sum += (address & 0xffff) + (address >> 16);
#endif
	__u16 l4_checksum = fold(sum);

#ifdef ZERO_MEANS_NONE
	if (!l4_checksum)
		l4_checksum = 0xffff;
#endif
	*(__u16 *)(data + L4_CHECKSUM) = l4_checksum;
#endif
	if (++s->address == ADDRESSES) {
		s->address = 0;
		if (++s->port == PORTS)
			s->port = 0;
	}
#endif
	s->sent++;
	return bpf_redirect(IFINDEX, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
