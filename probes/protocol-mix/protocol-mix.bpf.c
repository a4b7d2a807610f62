// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * protocol-mix: counts packets and bytes per network protocol, transport and service.
 *
 *	ENTRIES=n	entries of the map (default 8192)
 */
#include <twinprobe.h>

#ifndef ENTRIES
#define ENTRIES 8192
#endif

/* EtherTypes. Metrics show others as numbers. */
enum network {
	LLC = 0,		/* frames with a length instead of an EtherType (802.3) */
	CUT_OFF = 1,		/* frames that end before the EtherType */
	IPV4 = 0x0800,
	ARP = 0x0806,
	IPV6 = 0x86dd,
	PPPOE_DISCOVERY = 0x8863,
	PPPOE = 0x8864,
	EAPOL = 0x888e,
	PROFINET = 0x8892,
	ETHERCAT = 0x88a4,
	LLDP = 0x88cc,
	MACSEC = 0x88e5,
	PTP = 0x88f7,
};

/* Names of IANA. Metrics show others as numbers. */
enum transport {
	NO_TRANSPORT = 0,
	ICMP = 1,
	IGMP = 2,
	IPIP = 4,
	TCP = 6,
	UDP = 17,
	IPV6_INSIDE = 41,
	RSVP = 46,
	GRE = 47,
	ESP = 50,
	AH = 51,
	ICMPV6 = 58,
	NO_NEXT_HEADER = 59,
	EIGRP = 88,
	OSPF = 89,
	PIM = 103,
	VRRP = 112,
	SCTP = 132,
	UDPLITE = 136,
};

/* Ports. Metrics show others below 1024 as numbers. */
enum service {
	OTHER = 0,
	FTP_DATA = 20, FTP = 21, SSH = 22, TELNET = 23, SMTP = 25, DNS = 53, DHCP_SERVER = 67, DHCP_CLIENT = 68, TFTP = 69,
	HTTP = 80, KERBEROS = 88, POP3 = 110, RPCBIND = 111, NTP = 123, NETBIOS_NS = 137, NETBIOS_DGM = 138, NETBIOS_SSN = 139,
	IMAP = 143, SNMP = 161, SNMP_TRAP = 162, BGP = 179, LDAP = 389, HTTPS = 443, SMB = 445, SUBMISSIONS = 465, IKE = 500,
	SYSLOG = 514, DHCPV6_CLIENT = 546, DHCPV6_SERVER = 547, SUBMISSION = 587, LDAPS = 636, DOT = 853, IMAPS = 993,
	POP3S = 995,
	OPENVPN = 1194, MQTT = 1883, NFS = 2049, MYSQL = 3306, STUN = 3478, RDP = 3389, IKE_NAT = 4500, VXLAN = 4789,
	SIP = 5060, MDNS = 5353, POSTGRESQL = 5432, GENEVE = 6081, REDIS = 6379, HTTP_ALT = 8080, WIREGUARD = 51820,
};

#define WELL_KNOWN 1024

struct mix {
	enum network network;
	enum transport transport;
	enum service service;
};

struct counters {
	__u64 packets_total;
	__u64 bytes_total;
};

TP_PERCPU_HASH(mixes, struct mix, struct counters, ENTRIES);

static __always_inline int is_service(__u16 port)
{
	switch (port) {
	case OPENVPN:
	case MQTT:
	case NFS:
	case MYSQL:
	case STUN:
	case RDP:
	case IKE_NAT:
	case VXLAN:
	case SIP:
	case MDNS:
	case POSTGRESQL:
	case GENEVE:
	case REDIS:
	case HTTP_ALT:
	case WIREGUARD:
		return 1;
	}
	return port < WELL_KNOWN;
}

/* Prefers low ports: clients use high ones. */
static __always_inline enum service service_of(const struct tp_packet *packet)
{
	__u16 low = packet->source_port, high = packet->destination_port;

	if (low > high) {
		low = packet->destination_port;
		high = packet->source_port;
	}
	if (low && is_service(low))
		return low;
	return is_service(high) ? high : OTHER;
}

TP_PROBE(count_mixes, packet)
{
	struct mix mix = {};

	tp_parse(packet);
	if (!packet->l3)
		mix.network = CUT_OFF;
	else if (packet->ether_type >= 0x600)
		mix.network = packet->ether_type;
	mix.transport = packet->protocol;
	mix.service = service_of(packet);
	tp_count_frames(mixes, &mix, tp_segments(packet), tp_length(packet));
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
