#!/usr/bin/python3
"""Makes capture.pcap: flows of TCP, UDP and ICMP with and without a tag, fragments, options, and what is no IPv4."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = IP(src="192.0.2.1", dst="192.0.2.2")
packets = [eth / ip / TCP(sport=40000, dport=443, flags=flags) / Raw(b"x" * 100) for flags in ("S", "A", "PA", "FA")]
packets += [eth / ip / UDP(sport=5000 + i % 3, dport=53) / Raw(b"q" * 30) for i in range(12)]
packets += [eth / Dot1Q(vlan=5) / IP(src="192.0.2.3", dst="192.0.2.2", tos=0xB8) / UDP(sport=5004, dport=5004) / Raw(b"v" * 160) for _ in range(10)]
packets += [eth / ip / ICMP(type=8) / Raw(b"p" * 56) for _ in range(5)]
packets += [eth / IP(src="192.0.2.4", dst="192.0.2.2", options=[IPOption_RR()]) / TCP(sport=1500, dport=22, flags="S")]
packets += [eth / IP(src="192.0.2.5", dst="192.0.2.2", frag=100, proto=17) / Raw(b"f" * 64) for _ in range(2)]
packets += [eth / IPv6(src="2001:db8::1", dst="2001:db8::2") / TCP(sport=40000, dport=443) for _ in range(3)]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.9"), Ether(bytes(eth / ip / UDP())[:30])]
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
