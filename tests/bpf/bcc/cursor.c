#include <uapi/linux/if_ether.h>
#include <bcc/proto.h>
// Counts datagrams by fields that a cursor reads. The last header, after UDP, is the project's own.
struct note_t { u16 kind; u8 flags; u8 more; u32 number; } BPF_PACKET_HEADER;
struct key { u64 source; u32 from; u32 to; u16 port; u16 length; u16 kind; u16 hops; u32 number; u32 word; u64 offset; };
BPF_HASH(datagrams, struct key, u64, 16);
int count(struct CTXTYPE *skb)
{
	u8 *cursor = 0;
	struct ethernet_t *ethernet = cursor_advance(cursor, sizeof(*ethernet));

	switch (ethernet->type) {
	case ETH_P_IP: goto ip;
	default: goto end;
	}
ip: ;
	struct ip_t *ip = cursor_advance(cursor, sizeof(*ip));
	if (ip->ver != 4 || ip->nextp != 17)
		goto end;
	void *options = cursor_advance(cursor, ((ip->hlen << 2) - sizeof(*ip)));
	struct udp_t *udp = cursor_advance(cursor, sizeof(*udp));
	struct note_t *note = cursor_advance(cursor, sizeof(struct note_t));
	// The end of the UDP header.
	u64 offset = (u64)udp + sizeof(*udp);
	struct key key = {
		.source = ethernet->src, .from = ip->src, .to = ip->dst, .port = udp->dport, .length = udp->length,
		.kind = note->kind, .hops = ip->ttl, .number = note->number, .word = load_word(skb, 26), .offset = offset,
	};
	datagrams.increment(key);
end:
	return 1;
}
