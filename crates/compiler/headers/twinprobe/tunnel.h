/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets inside of tunnels. twinprobe.h has the overview. */
#ifndef TWINPROBE_TUNNEL_H
#define TWINPROBE_TUNNEL_H

/* Finds the tunnel with its header at l4: kind, id, start of the content and its EtherType (0 means Ethernet). */
static __always_inline enum tp_tunnel tp_tunnel(const struct tp_packet *packet, __u32 *id, __u32 *inside, __u16 *ether_type)
{
	__u8 *header;

	if (!packet->l4)
		return TP_NO_TUNNEL;
	*inside = packet->l4;
	*id = 0;
	switch (packet->protocol) {
	case IPPROTO_IPIP:
		*ether_type = ETH_P_IP;
		return TP_IPIP;
	case IPPROTO_IPV6:
		*ether_type = ETH_P_IPV6;
		return TP_IPIP;
	case IPPROTO_GRE: {
		__u16 flags;

		header = tp_at(packet, packet->l4, 4);
		if (!header)
			return TP_NO_TUNNEL;
		flags = bpf_ntohs(*(__be16 *)header);
		*ether_type = bpf_ntohs(*(__be16 *)(header + 2));
		/* Version 1 is PPTP. RFC 2784 removed routing. */
		if (flags & 0x4007)
			return TP_NO_TUNNEL;
		*inside += 4 + (flags & 0x8000 ? 4 : 0);
		if (flags & 0x2000) {
			__be32 *key = tp_at(packet, *inside, 4);

			if (!key)
				return TP_NO_TUNNEL;
			*id = bpf_ntohl(*key);
			*inside += 4;
		}
		*inside += flags & 0x1000 ? 4 : 0;
		if (*ether_type == ETH_P_TEB)
			*ether_type = 0;
		else if (*ether_type != ETH_P_IP && *ether_type != ETH_P_IPV6)
			return TP_NO_TUNNEL;
		return TP_GRE;
	}
	case IPPROTO_UDP:
		break;
	default:
		return TP_NO_TUNNEL;
	}
	if (packet->destination_port != 4789 && packet->destination_port != 6081)
		return TP_NO_TUNNEL;
	header = tp_at(packet, packet->payload, 8);
	if (!header)
		return TP_NO_TUNNEL;
	*id = bpf_ntohl(*(__be32 *)(header + 4)) >> 8;
	*inside = packet->payload + 8;
	*ether_type = 0;
	if (packet->destination_port == 4789)
		return header[0] & 8 ? TP_VXLAN : TP_NO_TUNNEL;
	if (header[0] >> 6)
		return TP_NO_TUNNEL;
	*inside += (header[0] & 0x3f) * 4;
	*ether_type = bpf_ntohs(*(__be16 *)(header + 2));
	if (*ether_type == ETH_P_TEB)
		*ether_type = 0;
	else if (*ether_type != ETH_P_IP && *ether_type != ETH_P_IPV6)
		return TP_NO_TUNNEL;
	return TP_GENEVE;
}

static __always_inline enum tp_tunnel tp_decapsulate(struct tp_packet *packet)
{
	__u16 ether_type = 0;
	__u32 id = 0, inside = 0;
	enum tp_tunnel tunnel = tp_tunnel(packet, &id, &inside, &ether_type);

	if (tunnel == TP_NO_TUNNEL)
		return tunnel;
	packet->tunnel_id = id;
	packet->depth++;
	tp_parse_at(packet, inside, ether_type);
	return tunnel;
}

#endif
