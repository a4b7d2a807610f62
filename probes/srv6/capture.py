#!/usr/bin/python3
"""Makes capture.pcap: a path of three segments at each of its stages, reduced headers, and headers that are wrong."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
# The list is in the reverse order of the path, which goes to A, then to B, then to C.
A, B, C = "fc00:a::1", "fc00:b::1", "fc00:c::1"
tcp = IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=80)
udp = UDP(sport=5, dport=6) / Raw(b"u" * 100)


def srv6(destination, left, addresses=(C, B, A), **more):
    return IPv6(src="2001:db8::1", dst=destination) / IPv6ExtHdrSegmentRouting(addresses=list(addresses), segleft=left, **more)


packets = []
packets += [eth / srv6(A, 2, nh=4) / tcp for _ in range(10)]
packets += [eth / srv6(B, 1, nh=4) / tcp / Raw(b"x" * i) for i in range(7)]
packets += [eth / srv6(C, 0, nh=4) / tcp for _ in range(5)]
packets += [eth / srv6(A, 2) / udp for _ in range(4)]
packets += [eth / Dot1Q(vlan=6) / srv6(B, 0, addresses=[B], nh=41) / IPv6(src="fd00::1", dst="fd00::2") / udp for _ in range(3)]
# A reduced header: A is in the destination address and not in the list.
packets += [eth / srv6(A, 2, addresses=[C, B], lastentry=1) / udp for _ in range(2)]
# A header with more segments left than its list has, a list that is longer than the header, and routing headers of type 0 and
# of type 2 (mobile IPv6).
packets += [eth / srv6(A, 4) / udp]
packets += [eth / srv6(A, 1, addresses=[C], lastentry=5) / udp for _ in range(2)]
packets += [eth / IPv6(src="2001:db8::1", dst=A) / IPv6ExtHdrRouting(type=0, addresses=[B], segleft=1) / udp for _ in range(3)]
packets += [eth / IPv6(src="2001:db8::1", dst=A) / IPv6ExtHdrRouting(type=2, addresses=[B], segleft=1) / udp]
# A list that is cut off, and a packet without a routing header.
packets += [Ether(bytes(eth / srv6(A, 2) / udp)[:14 + 40 + 12])]
packets += [eth / IPv6(src="2001:db8::1", dst=A) / udp, eth / tcp]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
