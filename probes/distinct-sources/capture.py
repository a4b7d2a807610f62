#!/usr/bin/python3
"""Makes capture.pcap: 200 sources, some of which send several packets."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
packets = []
packets += [eth / IP(src=f"198.51.{100 + i // 250}.{i % 250 + 1}", dst="192.0.2.1") / UDP(sport=9, dport=9) for i in range(140)]
packets += [eth / IPv6(src=f"2001:db8::{i + 1:x}", dst="2001:db8:1::1") / UDP(sport=9, dport=9) for i in range(60)]
# Packets from the same sources again, and packets that are not IP.
packets += [eth / Dot1Q(vlan=4) / IP(src=f"198.51.100.{i + 1}", dst="192.0.2.1") / TCP() for i in range(40)]
packets += [eth / ARP(psrc=f"203.0.113.{i}", pdst="192.0.2.9") for i in range(3)]
packets += [Ether(bytes(eth / IP(src="203.0.113.99", dst="192.0.2.1"))[:24])]
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
