#!/usr/bin/python3
"""Makes capture.pcap: a voice stream every 20 ms, bursts in between, a slow flow, packets of the same microsecond."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = IP(src="192.0.2.1", dst="192.0.2.2")
ip6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
START = 1700000000_000000
timed = []
timed += [(20000 * i, eth / ip / UDP(sport=5004, dport=5004) / Raw(b"v" * 160)) for i in range(50)]
for burst in range(5):
    timed += [(150000 * burst + 5000 + 12 * i, eth / ip6 / TCP(sport=443, dport=40000) / Raw(b"d" * 1200)) for i in range(12)]
timed += [(400000 * i + 7, eth / Dot1Q(vlan=2) / ip / ICMP()) for i in range(3)]
# Packets that arrive at the same time, and a packet that is not IP.
timed += [(990000, eth / ip / UDP(sport=9, dport=9)), (990000, eth / ip / UDP(sport=9, dport=9))]
timed += [(995000, eth / ARP(psrc="192.0.2.1", pdst="192.0.2.9"))]
packets = []
for time, packet in sorted(timed, key=lambda pair: pair[0]):
    packet.time = EDecimal(START + time) / 1000000
    packets.append(packet)
wrpcap("capture.pcap", packets)
