#!/usr/bin/python3
"""Makes capture.pcap: packets of several protocols, some of them with headers that are cut off or tagged."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = IP(src="192.0.2.1", dst="192.0.2.2")
ip6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
packets = []
packets += [eth / ip / TCP(sport=1024 + i, dport=80, flags="S") for i in range(20)]
packets += [eth / ip / UDP(sport=53, dport=1024 + i) / Raw(b"x" * (100 + i)) for i in range(10)]
packets += [eth / ip / ICMP(id=1, seq=i) / Raw(b"p" * 56) for i in range(5)]
packets += [eth / Dot1Q(vlan=7) / ip / TCP(sport=1, dport=443, flags="A") for _ in range(4)]
packets += [eth / Dot1AD(vlan=7) / Dot1Q(vlan=8) / ip6 / UDP(sport=1, dport=443) / Raw(b"q" * 40) for _ in range(3)]
packets += [eth / ip6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / ICMPv6EchoRequest() for _ in range(2)]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.2", hwsrc=eth.src) for _ in range(6)]
packets += [Ether(src=eth.src, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(b"\x02\x07\x04" + bytes(30))]
# A packet whose IPv4 header is cut off, and a packet whose header states too great a length. The probe counts the second packet
# by its protocol.
packets += [Ether(bytes(eth / ip / TCP())[:24])]
packets += [eth / IP(src="192.0.2.1", dst="192.0.2.2", len=1400) / UDP(sport=9, dport=9, len=1380)]
# Frames that are too short for an IPv6 header, and frames with an Ethernet header alone.
packets += [Ether(bytes(eth / ip6)[:30]), Ether(bytes(eth)[:12] + b"\x08\x00")]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
