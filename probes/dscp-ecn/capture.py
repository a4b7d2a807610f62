#!/usr/bin/python3
"""Makes capture.pcap: classes with and without a name, all ECN marks, and a TCP connection with ECN."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def ip(dscp, ecn=0):
    return IP(src="192.0.2.1", dst="192.0.2.2", tos=dscp << 2 | ecn)


def ip6(dscp, ecn=0):
    return IPv6(src="2001:db8::1", dst="2001:db8::2", tc=dscp << 2 | ecn)


packets = []
packets += [eth / ip(0) / UDP(sport=i, dport=9) / Raw(b"x" * i) for i in range(20)]
packets += [eth / ip(46) / UDP(sport=5004, dport=5004) / Raw(b"v" * 160) for _ in range(10)]
packets += [eth / ip6(46) / UDP(sport=5004, dport=5004) / Raw(b"v" * 160) for _ in range(5)]
packets += [eth / ip(34) / UDP() / Raw(b"m" * 700) for _ in range(4)]
packets += [eth / Dot1Q(vlan=3) / ip(48, 0) / Raw(b"\x02\x01" + bytes(22)) for _ in range(2)]
packets += [eth / ip6(5, 1) / TCP(flags="A") for _ in range(3)]
# A connection with ECN: the client asks for ECN, the server agrees, one packet is marked, the receiver echoes the mark, and the
# sender answers the echo.
packets += [eth / ip(0) / TCP(flags="SEC"), eth / ip(0) / TCP(flags="SAE"), eth / ip(0, 2) / TCP(flags="A")]
packets += [eth / ip(0, 3) / TCP(flags="A") / Raw(b"d" * 1000) for _ in range(2)]
packets += [eth / ip(0) / TCP(flags="AE"), eth / ip(0, 2) / TCP(flags="AC") / Raw(b"d" * 500)]
# Connections without ECN: one client does not ask for ECN, and one server does not agree.
packets += [eth / ip6(0) / TCP(flags="S"), eth / ip6(0) / TCP(flags="SA"), eth / ip(0) / TCP(flags="SEC"), eth / ip(0) / TCP(flags="SA")]
# A later fragment, whose bytes are not a TCP header. A TCP header that is cut off, a packet that is not IP, and an IP header
# that is cut off.
packets += [eth / IP(src="192.0.2.1", dst="192.0.2.2", proto=6, frag=100, tos=40) / Raw(b"\xff" * 40)]
packets += [Ether(bytes(eth / ip(8) / TCP(flags="S"))[:40])]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.2", hwsrc=eth.src), Ether(bytes(eth / ip(1))[:30])]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
