#!/usr/bin/python3
"""Makes capture.pcap: 64 sources that send the same number of packets each, to one address and two ports."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
packets = []
for i in range(128):
    packets += [eth / IP(src=f"198.51.100.{i % 64}", dst="192.0.2.1") / UDP(sport=1024 + i, dport=53 if i % 2 else 443)]
# Packets without ports from the same sources, and packets that are not IP.
packets += [eth / IP(src=f"198.51.100.{i}", dst="192.0.2.1") / ICMP() for i in range(64)]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.9") for _ in range(3)]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
