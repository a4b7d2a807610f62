#!/usr/bin/python3
"""Makes capture.pcap: packets shorter and longer than the 128 bytes of an event, tagged, cut off, and no IP at all."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = IP(src="192.0.2.1", dst="192.0.2.2")
packets = []
packets += [eth / ip / TCP(sport=1024 + i, dport=80, flags="S") for i in range(5)]
packets += [eth / ip / UDP(sport=9, dport=9) / Raw(bytes(range(n))) for n in [85, 86, 87, 200]]
packets += [eth / ip / UDP(sport=9, dport=9) / Raw(b"long" * 350)]
packets += [eth / Dot1Q(vlan=5) / IPv6(src="2001:db8::1", dst="2001:db8::2") / ICMPv6EchoRequest() / Raw(b"p" * 40) for _ in range(3)]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.2", hwsrc=eth.src)]
packets += [Ether(bytes(eth / ip)[:20]), Ether(bytes(eth)[:12] + b"\x08\x00"), Ether(src=eth.src, dst=eth.dst, type=0x88CC) / Raw(bytes(115))]
packets += [eth / ip / ICMP(id=7, seq=i) / Raw(b"q" * 56) for i in range(3)]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
