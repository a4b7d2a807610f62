#!/usr/bin/python3
"""Makes capture.pcap: several network and transport protocols, services on either side, headers that are cut off."""
from scapy.all import *
from scapy.contrib.mpls import MPLS

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = IP(src="192.0.2.1", dst="192.0.2.2")
ip6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
packets = []
packets += [eth / ip / TCP(sport=40000 + i, dport=443) / Raw(b"x" * 100) for i in range(20)]
packets += [eth / ip / TCP(sport=443, dport=40000 + i) / Raw(b"y" * 1400) for i in range(10)]
packets += [eth / ip6 / UDP(sport=50000 + i, dport=443) / Raw(b"q" * 1200) for i in range(8)]
packets += [eth / Dot1Q(vlan=5) / ip / UDP(sport=33333, dport=53) / Raw(b"d" * 30) for _ in range(6)]
packets += [eth / ip6 / UDP(sport=53, dport=33333) / Raw(b"d" * 60) for _ in range(4)]
packets += [eth / ip / TCP(sport=3306, dport=51820) for _ in range(3)]
packets += [eth / ip / TCP(sport=60000, dport=999) for _ in range(2)]
packets += [eth / ip / UDP(sport=60000, dport=61000) / Raw(b"p") for _ in range(2)]
packets += [eth / ip / UDP(sport=0, dport=61000) / Raw(b"p")]
packets += [eth / ip / ICMP() / Raw(b"ping" * 14) for _ in range(5)]
packets += [eth / ip6 / ICMPv6EchoRequest(data=b"ping" * 14) for _ in range(3)]
packets += [eth / ip6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / TCP(sport=1500, dport=22)]
packets += [eth / IP(src="192.0.2.1", dst="192.0.2.2", options=[IPOption_RR()]) / TCP(sport=1500, dport=22)]
# A later fragment has no ports.
packets += [eth / IP(src="192.0.2.1", dst="192.0.2.2", frag=100, proto=17) / Raw(b"f" * 64)]
packets += [eth / ip / GRE() / IP() / UDP(dport=53)]
packets += [eth / IP(src="192.0.2.1", dst="224.0.0.5", proto=89) / Raw(bytes(44)) for _ in range(2)]
packets += [eth / MPLS(label=16, s=1) / ip / TCP(sport=1501, dport=80)]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.9") for _ in range(4)]
packets += [Ether(src=eth.src, dst=eth.dst, type=0x88CC) / Raw(b"\x02\x07\x04" + bytes(30))]
packets += [Ether(src=eth.src, dst=eth.dst, type=0x9999) / Raw(bytes(46))]
packets += [Dot3(src=eth.src, dst="01:80:c2:00:00:00", len=38) / LLC(dsap=0x42, ssap=0x42, ctrl=3) / Raw(bytes(35))]
# An IPv4 header that is cut off, and a TCP header that is cut off.
packets += [Ether(bytes(eth / ip / TCP())[:24])]
packets += [Ether(bytes(eth / ip / TCP(sport=40000, dport=443))[:44])]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets, linktype=1)
