/* Bytes of the packet at an offset, in host order: load_byte() and the like, and the cursor over the headers of
 * bcc/proto.h. If the packet is too short, the program returns 0, as in BCC. */
#ifndef TWINPROBE_BCC_PACKET_H
#define TWINPROBE_BCC_PACKET_H

#if TBCC_XDP
/* The largest offset, because the verifier needs a bound. */
#define TBCC_REACH 0x7fff

static __always_inline long twinprobe_load(void *ctx, u64 offset, void *to, u32 size)
{
	struct xdp_md *packet = ctx;
	void *data = (void *)(long)packet->data;
	void *end = (void *)(long)packet->data_end;

	if (offset > TBCC_REACH)
		return -1;
	data += offset;
	if (data + size > end)
		return -1;
	__builtin_memcpy(to, data, size);
	return 0;
}
#else
static __always_inline long twinprobe_load(void *ctx, u64 offset, void *to, u32 size)
{
	return bpf_skb_load_bytes(ctx, offset, to, size);
}
#endif

#define TBCC_LOAD(type, ctx, offset) ({ \
	type twinprobe_bytes; \
	if (twinprobe_load(ctx, offset, &twinprobe_bytes, sizeof(type))) \
		return 0; \
	twinprobe_bytes; \
})
#define load_byte(ctx, offset) ((unsigned long long)TBCC_LOAD(u8, ctx, offset))
#define load_half(ctx, offset) ((unsigned long long)bpf_ntohs(TBCC_LOAD(u16, ctx, offset)))
#define load_word(ctx, offset) ((unsigned long long)bpf_ntohl(TBCC_LOAD(u32, ctx, offset)))
#define load_dword(ctx, offset) ((unsigned long long)bpf_be64_to_cpu(TBCC_LOAD(u64, ctx, offset)))

/* Reads `size` bits of the packet, after the first `bit` bits at `offset`. */
#define bpf_dext_pkt(ctx, offset, bit, size) ({ \
	u8 twinprobe_bytes[8] = {}; \
	if (twinprobe_load(ctx, offset, twinprobe_bytes, ((bit) + (size) + 7) / 8)) \
		return 0; \
	bpf_be64_to_cpu(*(u64 *)twinprobe_bytes) << (bit) >> (64 - (size)); \
})

/* cursor_advance(cursor, sizeof(*header)) copies the header, swaps its fields to host order and advances the cursor.
 * TBCC_TYPE_OF_sizeof takes the type of the header from the second argument. */
#define cursor_advance(cursor, n) TBCC_ADVANCE(cursor, n)
#define TBCC_ADVANCE(cursor, n) TBCC_IF(TBCC_IS_PAREN(n))(TBCC_MOVE, TBCC_HEADER)(cursor, n)
#define TBCC_IS_PAREN(n) TBCC_IS_MARK(TBCC_MARK n)

#define TBCC_TYPE_OF_sizeof(what) ~, 1, __typeof__(what)
#define TBCC_HEADER(cursor, n) TBCC_HEADER_(cursor, n, TBCC_TYPE_OF_##n)
#define TBCC_HEADER_(cursor, n, ...) TBCC_IF(TBCC_IS_MARK(__VA_ARGS__))(TBCC_COPY, TBCC_BYTES)(cursor, n, __VA_ARGS__)
#define TBCC_COPY(cursor, n, mark, one, type) ((type *)twinprobe_to_host( \
	TBCC_LOAD_AT(cursor, &(TBCC_ROOM(type)){}, sizeof(type), n, TBCC_NOTE(type)), sizeof(type), TBCC_LAYOUT(type)))
#define TBCC_BYTES(cursor, n, ...) \
	((void *)TBCC_LOAD_AT(cursor, &(u64){0}, __builtin_constant_p(n) && (n) <= 8 ? (n) : 0, n, 0))
#define TBCC_MOVE(cursor, n) ({ void *twinprobe_at = (void *)(cursor); (cursor) += (n); twinprobe_at; })
#define TBCC_LOAD_AT(cursor, to, bytes, n, note) \
	(twinprobe_advance(TWINPROBE_PACKET, (u8 **)&(cursor), to, bytes, n, note) ?: ({ return 0; (void *)0; }))

/* The type of a copy, and the position of the packet offset in it; 0 if the source needs no offset. */
#ifdef TBCC_HAS_OFFSETS
#define TBCC_ROOM(type) TBCC_WITH_OFFSET(type)
#define TBCC_NOTE(type) TBCC_BEHIND(type)
#else
#define TBCC_ROOM(type) type
#define TBCC_NOTE(type) 0
#endif

static __always_inline void *twinprobe_advance(void *ctx, u8 **cursor, void *to, u32 bytes, u64 n, u32 note)
{
	if (bytes > 0 && twinprobe_load(ctx, (u64)*cursor, to, bytes))
		return NULL;
	if (note > 0)
		*(u64 *)(to + note) = (u64)*cursor;
	*cursor += n;
	return to;
}

struct ethernet_t;
struct dot1q_t;
struct arp_t;
struct ip_t;
struct icmp_t;
struct ip6_t;
struct ip6_opt_t;
struct icmp6_t;
struct udp_t;
struct tcp_t;
struct vxlan_t;
struct vxlan_gbp_t;

/* The layout for the swap to host order: "r" reverses the whole header, because its struct declares the fields
 * backwards; digits are the widths of the fields in bytes. The daemon finds these for the source's own headers. */
#ifndef TWINPROBE_LAYOUTS
#define TWINPROBE_LAYOUTS
#endif
#define TBCC_LAYOUT(type) _Generic((type *)0, \
	struct ethernet_t *: "r", struct dot1q_t *: "r", struct arp_t *: "r", struct ip_t *: "r", struct icmp_t *: "r", \
	struct ip6_t *: "r", struct ip6_opt_t *: "r", struct icmp6_t *: "r", struct udp_t *: "r", struct tcp_t *: "r", \
	struct vxlan_t *: "r", struct vxlan_gbp_t *: "r", TWINPROBE_LAYOUTS default: "")

static __always_inline void twinprobe_reverse(u8 *bytes, u32 size)
{
#pragma unroll
	for (u32 i = 0; i < size / 2; i++) {
		u8 first = bytes[i];

		bytes[i] = bytes[size - 1 - i];
		bytes[size - 1 - i] = first;
	}
}

#define TBCC_SWAP(type, swap, field) do { \
	type twinprobe_number; \
	__builtin_memcpy(&twinprobe_number, field, sizeof(type)); \
	twinprobe_number = swap(twinprobe_number); \
	__builtin_memcpy(field, &twinprobe_number, sizeof(type)); \
} while (0)

static __always_inline void *twinprobe_to_host(void *header, u32 size, const char *layout)
{
	u8 *field = header;

	if (layout[0] == 'r') {
		twinprobe_reverse(field, size);
		return header;
	}
#pragma unroll
	for (u32 i = 0; i < __builtin_strlen(layout); i++) {
		if (layout[i] == '2')
			TBCC_SWAP(u16, __builtin_bswap16, field);
		else if (layout[i] == '4')
			TBCC_SWAP(u32, __builtin_bswap32, field);
		else if (layout[i] == '8')
			TBCC_SWAP(u64, __builtin_bswap64, field);
		field += layout[i] - '0';
	}
	return header;
}

#endif
