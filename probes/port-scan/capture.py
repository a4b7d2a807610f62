#!/usr/bin/python3
"""Makes capture.pcap: a scan of ports, a sweep of addresses, a genuine client, answers of a server."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
packets = []
# Scans of 100 ports of one address, of one port of 60 addresses, of 12 ports with XMAS packets, and of addresses by ping over
# IPv6.
packets += [eth / IP(src="203.0.113.1", dst="192.0.2.1") / TCP(sport=55555, dport=port, flags="S") for port in range(1, 101)]
packets += [eth / IP(src="203.0.113.2", dst=f"192.0.2.{i}") / TCP(sport=55555, dport=23, flags="S") for i in range(1, 61)]
packets += [eth / IP(src="203.0.113.3", dst="192.0.2.1") / TCP(sport=55555, dport=20 + i, flags="FPU") for i in range(12)]
packets += [eth / IPv6(src="2001:db8::bad", dst=f"2001:db8:1::{i:x}") / ICMPv6EchoRequest() for i in range(1, 21)]
# A client that makes several connections to one port of one server, and asks a name server.
for i in range(6):
    client = eth / IP(src="198.51.100.7", dst="192.0.2.80")
    packets += [client / TCP(sport=40000 + i, dport=443, flags=flags) for flags in ("S", "A", "PA", "FA")]
    packets += [eth / IP(src="198.51.100.7", dst="192.0.2.53") / UDP(sport=50000 + i, dport=53) / Raw(b"question")]
# Servers send answers to many ports of a client. Answers, resets and fragments begin no connection.
packets += [eth / IP(src="192.0.2.53", dst="198.51.100.7") / UDP(sport=53, dport=50000 + i) / Raw(b"answer") for i in range(10)]
packets += [eth / IP(src="192.0.2.80", dst="198.51.100.7") / TCP(sport=443, dport=40000 + i, flags="SA") for i in range(10)]
packets += [eth / IP(src="192.0.2.81", dst="198.51.100.7") / TCP(sport=443, dport=40000 + i, flags="R") for i in range(3)]
packets += [eth / IP(src="192.0.2.82", dst="198.51.100.7", frag=9, proto=6) / Raw(bytes(40))]
packets += [Ether(bytes(eth / IP(src="192.0.2.83", dst="198.51.100.7") / TCP(flags="S"))[:40]), eth / ARP()]
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
