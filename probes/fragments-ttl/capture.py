#!/usr/bin/python3
"""Makes capture.pcap: fragments of both IP families, tiny ones, a traceroute, a source whose TTL changes."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
packets = []


def ip(host, **fields):
    return IP(src=f"198.51.100.{host}", dst="192.0.2.1", **fields)


def ip6(host, **fields):
    return IPv6(src=f"2001:db8::{host:x}", dst="2001:db8:1::1", **fields)


packets += [eth / ip(1, ttl=57, flags="DF") / TCP(sport=443, dport=40000 + i, flags="A") / Raw(b"x" * 100) for i in range(20)]
packets += [eth / ip(2, ttl=113) / UDP(sport=53, dport=5000 + i) / Raw(b"d" * 40) for i in range(10)]
packets += [eth / ip6(1, hlim=60) / TCP(sport=443, dport=40000) for _ in range(8)]
# Datagrams in fragments: 3000 bytes over IPv4, and 2000 bytes over IPv6.
for i in range(4):
    packets += fragment(eth / ip(3, ttl=60, id=i + 1) / UDP(sport=53, dport=7000) / Raw(b"f" * 3000), fragsize=1200)
for i in range(3):
    packets += fragment6(eth / ip6(2, hlim=61) / IPv6ExtHdrFragment(id=i) / UDP(sport=53, dport=7000) / Raw(b"f" * 2000), 1280)
# A packet with a fragment header that is not a part of a larger packet (an atomic fragment).
packets += [eth / ip6(2, hlim=61) / IPv6ExtHdrFragment(id=9, m=0, offset=0) / UDP(sport=53, dport=7000) / Raw(b"a" * 30)]
# Tiny fragments: the first one has only 8 bytes of TCP.
packets += [eth / ip(4, ttl=50, flags="MF", proto=6, id=77) / Raw(bytes(TCP(dport=22))[:8])]
packets += [eth / ip(4, ttl=50, frag=1, proto=6, id=77) / Raw(bytes(TCP(dport=22))[8:])]
# A traceroute, and two senders that use the same forged address.
packets += [eth / ip(5, ttl=hops) / UDP(sport=33000, dport=33434 + hops) for hops in range(1, 6)]
packets += [eth / ip(6, ttl=hops) / ICMP() for hops in (64, 240, 64, 240)]
packets += [eth / Dot1Q(vlan=3) / ip6(3, hlim=255) / ICMPv6ND_NS(tgt="2001:db8:1::1"), eth / ip(7, ttl=0) / ICMP()]
# Packets that are not IP.
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.9"), Ether(bytes(eth / ip(9) / UDP())[:30])]
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
