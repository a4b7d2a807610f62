#!/usr/bin/python3
"""Makes capture.pcap: sources and destinations in private, shared, multicast and other networks of both families."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
pairs = [
    ("10.1.2.3", "192.168.1.1"), ("10.255.255.255", "203.0.113.9"), ("11.0.0.0", "9.255.255.255"), ("172.15.255.255", "172.16.0.0"),
    ("172.31.255.255", "172.32.0.0"), ("100.64.0.1", "100.128.0.0"), ("192.168.255.1", "239.1.1.1"), ("192.0.2.1", "255.255.255.255"),
    ("169.254.7.7", "127.0.0.1"), ("2001:db8::1", "fe80::1"), ("fe80::2", "ff02::1"), ("fd00::7", "2607:f8b0::1"), ("4000::1", "3fff::1"),
]
packets = []
for i, (source, destination) in enumerate(pairs):
    ip = IPv6(src=source, dst=destination) if ":" in source else IP(src=source, dst=destination)
    packets += [eth / ip / UDP(sport=4000 + i, dport=9) / Raw(b"x" * (10 * i + j)) for j in range(i + 1)]
packets += [eth / Dot1Q(vlan=2) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP() for _ in range(3)]
packets += [eth / IP(src="192.168.3.3", dst="10.0.0.2", frag=30, proto=17) / Raw(b"f" * 64)]
# Packets that are not IP, and IP headers that are cut off, belong to no network.
packets += [eth / ARP(psrc="10.0.0.1", pdst="10.0.0.2", hwsrc=eth.src), Ether(bytes(eth / IP(src="10.0.0.1"))[:29])]
packets += [Ether(bytes(eth / IPv6(src="fe80::1", dst="fe80::2"))[:30])]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
