#!/usr/bin/python3
"""Makes capture.pcap: three large flows of both IP families among many small ones."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
packets = []
packets += [eth / IP(src="198.51.100.1", dst="192.0.2.1") / TCP(sport=443, dport=40000, flags="A") / Raw(b"a" * 1400) for _ in range(30)]
packets += [eth / IPv6(src="2001:db8::1", dst="2001:db8:1::1") / UDP(sport=443, dport=50000) / Raw(b"b" * 1200) for _ in range(16)]
packets += [eth / Dot1Q(vlan=5) / IP(src="198.51.100.2", dst="192.0.2.1") / ESP(spi=7, seq=1) / Raw(b"c" * 900) for _ in range(12)]
# Small flows, a flow that stays below the threshold, and a packet that is not IP.
packets += [eth / IP(src=f"198.51.100.{10 + i % 40}", dst="192.0.2.1") / UDP(sport=1024 + i, dport=53) / Raw(b"q" * 40) for i in range(120)]
packets += [eth / IP(src="198.51.100.3", dst="192.0.2.1") / TCP(sport=80, dport=41000, flags="A") / Raw(b"d" * 946) for _ in range(9)]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.9") for _ in range(3)]
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
