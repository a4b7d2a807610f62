#!/usr/bin/python3
"""Makes capture.pcap: frames without a tag, with one, two and three, with VLAN 0 (priority only) and VLAN 4095."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = IP(src="192.0.2.1", dst="192.0.2.2")
ip6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
packets = []
packets += [eth / ip / TCP(sport=1024 + i, dport=80) for i in range(12)]
packets += [eth / Dot1Q(vlan=10) / ip / UDP(sport=i, dport=53) / Raw(b"x" * i) for i in range(9)]
packets += [eth / Dot1Q(vlan=10, prio=5) / ip / UDP(sport=5060, dport=5060) / Raw(b"voice" * 20) for _ in range(6)]
packets += [eth / Dot1Q(vlan=4095) / ip6 / TCP() for _ in range(2)]
packets += [eth / Dot1Q(vlan=0, prio=7) / ip / ICMP() for _ in range(3)]
packets += [eth / Dot1AD(vlan=100) / Dot1Q(vlan=10) / ip6 / UDP() / Raw(b"q" * 300) for _ in range(5)]
packets += [eth / Dot1Q(vlan=100) / Dot1Q(vlan=20, prio=3) / ARP(psrc="192.0.2.1", pdst="192.0.2.9") for _ in range(4)]
packets += [eth / Dot1AD(vlan=7, prio=1) / Dot1Q(vlan=8) / Dot1Q(vlan=9) / ip / TCP() for _ in range(2)]
# Two tags, of which the second one is cut off. (The kernel does not pass a frame that ends right after its first tag to TC.)
packets += [Ether(bytes(eth / Dot1Q(vlan=30) / Dot1Q(vlan=31) / ip)[:20])]
packets += [Ether(src=eth.src, dst=eth.dst, type=0x88CC) / Raw(b"\x02\x07\x04" + bytes(30))]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
