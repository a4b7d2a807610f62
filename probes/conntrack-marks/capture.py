#!/usr/bin/python3
"""Makes capture.pcap: a few packets. A capture has no marks: they all count as mark 0."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = IP(src="192.0.2.1", dst="192.0.2.2")
packets = [eth / ip / TCP(sport=1024 + i, dport=80) for i in range(15)]
packets += [eth / Dot1Q(vlan=3) / IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP() / Raw(b"x" * i) for i in range(8)]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.2", hwsrc=eth.src), Ether(bytes(eth / ip)[:20])]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
