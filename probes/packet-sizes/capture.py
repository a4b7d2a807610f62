#!/usr/bin/python3
"""Makes capture.pcap: frames at both sides of each limit, of both IP families, with a tag, of no IP family."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = IP(src="192.0.2.1", dst="192.0.2.2")
ip6 = IPv6(src="2001:db8::1", dst="2001:db8::2")


def frame(length, layers):
    """Returns a frame of so many bytes."""
    return layers / Raw(b"x" * (length - len(layers)))


packets = []
for limit in 60, 123, 251, 507, 1019, 1514:
    packets += [frame(limit, eth / ip / UDP(sport=9, dport=9)) for _ in range(3)]
    if limit < 1514:
        packets += [frame(limit + 1, eth / ip / UDP(sport=9, dport=9)) for _ in range(2)]
for size in 64, 127, 128, 255, 256, 511, 512, 1023, 1024, 1514:
    packets += [frame(size, eth / ip6 / UDP(sport=9, dport=9))]
# A frame of the largest size, with a VLAN tag.
packets += [frame(1518, eth / Dot1Q(vlan=7) / ip / UDP(sport=9, dport=9)) for _ in range(4)]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.9") for _ in range(5)]
# Frames that end within their headers.
packets += [Ether(bytes(eth / ip / UDP())[:14]), Ether(bytes(eth / ip / UDP())[:20])]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
