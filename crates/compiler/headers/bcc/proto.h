/* The headers of packets, with BCC's names. Their structs have the last bit on the wire first, because
 * cursor_advance() reverses the bytes of a header to bring all fields into host order. A copy is read-only. */
#ifndef TWINPROBE_BCC_PROTO_H
#define TWINPROBE_BCC_PROTO_H

#define BPF_PACKET_HEADER __attribute__((packed))

struct ethernet_t {
	const unsigned int type:16;
	const unsigned long long src:48;
	const unsigned long long dst:48;
} BPF_PACKET_HEADER;

struct dot1q_t {
	const unsigned short type;
	const unsigned short vlanid:12;
	const unsigned short cfi:1;
	const unsigned short pri:3;
} BPF_PACKET_HEADER;

struct arp_t {
	const unsigned int tpa;
	const unsigned long long tha:48;
	const unsigned long long spa:32;
	const unsigned long long sha:48;
	const unsigned short oper;
	const unsigned char plen;
	const unsigned char hlen;
	const unsigned short ptype;
	const unsigned short htype;
} BPF_PACKET_HEADER;

struct ip_t {
	const unsigned int dst;
	const unsigned int src;
	const unsigned short hchecksum;
	const unsigned char nextp;
	const unsigned char ttl;
	const unsigned short foffset:13;
	const unsigned short mf:1;
	const unsigned short df:1;
	const unsigned short ffo_unused:1;
	const unsigned short identification;
	const unsigned short tlen;
	const unsigned char tos;
	const unsigned char hlen:4;
	const unsigned char ver:4;
} BPF_PACKET_HEADER;

struct icmp_t {
	const unsigned short checksum;
	const unsigned char code;
	const unsigned char type;
} BPF_PACKET_HEADER;

struct ip6_t {
	const unsigned long long dst_lo;
	const unsigned long long dst_hi;
	const unsigned long long src_lo;
	const unsigned long long src_hi;
	const unsigned char hop_limit;
	const unsigned char next_header;
	const unsigned short payload_len;
	const unsigned int flow_label:20;
	const unsigned int priority:8;
	const unsigned int ver:4;
} BPF_PACKET_HEADER;

struct ip6_opt_t {
	const unsigned char pad[6];
	const unsigned char ext_len;
	const unsigned char next_header;
} BPF_PACKET_HEADER;

struct icmp6_t {
	const unsigned short checksum;
	const unsigned char code;
	const unsigned char type;
} BPF_PACKET_HEADER;

struct udp_t {
	const unsigned short crc;
	const unsigned short length;
	const unsigned short dport;
	const unsigned short sport;
} BPF_PACKET_HEADER;

struct tcp_t {
	const unsigned short urg_ptr;
	const unsigned short cksum;
	const unsigned short rcv_wnd;
	const unsigned char flag_fin:1;
	const unsigned char flag_syn:1;
	const unsigned char flag_rst:1;
	const unsigned char flag_psh:1;
	const unsigned char flag_ack:1;
	const unsigned char flag_urg:1;
	const unsigned char flag_ece:1;
	const unsigned char flag_cwr:1;
	const unsigned char reserved:4;
	const unsigned char offset:4;
	const unsigned int ack_num;
	const unsigned int seq_num;
	const unsigned short dst_port;
	const unsigned short src_port;
} BPF_PACKET_HEADER;

struct vxlan_t {
	const unsigned int rsv4:8;
	const unsigned int key:24;
	const unsigned int rsv3:24;
	const unsigned int rsv2:3;
	const unsigned int iflag:1;
	const unsigned int rsv1:4;
} BPF_PACKET_HEADER;

struct vxlan_gbp_t {
	const unsigned int rsv6:8;
	const unsigned int key:24;
	const unsigned int tag:16;
	const unsigned int rsv5:3;
	const unsigned int aflag:1;
	const unsigned int rsv4:1;
	const unsigned int dflag:1;
	const unsigned int rsv3:1;
	const unsigned int rsv2:3;
	const unsigned int iflag:1;
	const unsigned int rsv1:3;
	const unsigned int gflag:1;
} BPF_PACKET_HEADER;

#endif
