#!/usr/bin/python3
"""Makes capture.pcap: flows of several protocols, with options, tags, fragments and headers that are cut off; more
flows than the table has room for (FLOWS in check.json); packets that are not IPv4; and flows of IPv6."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = IP(src="192.0.2.1", dst="192.0.2.2")
ip6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
packets = []
# A connection: each direction is a flow. A flow keeps the type of service of its first packet.
client, server = dict(sport=40000, dport=80), dict(sport=80, dport=40000)
back = IP(src="192.0.2.2", dst="192.0.2.1", tos=0x10)
packets += [eth / IP(src="192.0.2.1", dst="192.0.2.2", tos=0x28) / TCP(**client, flags="S", options=[("MSS", 1460)])]
packets += [eth / back / TCP(**server, flags="SA", options=[("MSS", 1460)])]
packets += [eth / ip / TCP(**client, flags="A"), eth / ip / TCP(**client, flags="PA") / Raw(b"GET / HTTP/1.0\r\n\r\n")]
packets += [eth / back / TCP(**server, flags="A") / Raw(b"y" * 1460) for _ in range(12)]
packets += [eth / back / TCP(**server, flags="FA"), eth / ip / TCP(**client, flags="A"), eth / ip / TCP(**client, flags="R")]
# No flag is in two packets, so the sum of the flags is their logical OR.
packets += [eth / ip / TCP(sport=40001, dport=25, flags=flags) for flags in ["S", "A", "P", "F", "U", "E", "C"]]
packets += [eth / IP(src=f"198.51.100.{i % 5}", dst="192.0.2.2") / TCP(sport=1024, dport=443, flags="S") for i in range(20)]
packets += [eth / ip / UDP(sport=5353, dport=53) / Raw(b"x" * i) for i in range(10)]
packets += [eth / ip / ICMP(id=1, seq=i) / Raw(b"p" * 56) for i in range(5)]
packets += [eth / back / ICMP(type=3, code=3) / ip / UDP(sport=9, dport=9)]
packets += [eth / ip / SCTP(sport=2905, dport=2906) for _ in range(2)]
packets += [eth / IP(src=ip.src, dst=ip.dst, proto=136) / Raw(b"\x00\x07\x00\x08" + bytes(4))]
packets += [eth / ip / GRE() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=7, dport=7) for _ in range(3)]
packets += [eth / IP(src=ip.src, dst=ip.dst, options=[IPOption_Router_Alert()]) / UDP(sport=520, dport=521)]
# Packets with a tag belong to the same flow as packets without a tag. The tag counts among the bytes.
packets += [eth / Dot1Q(vlan=7) / ip / UDP(sport=1, dport=2) / Raw(b"v" * 20)]
packets += [eth / Dot1AD(vlan=7) / Dot1Q(vlan=8) / ip / UDP(sport=1, dport=2) / Raw(b"w" * 20), eth / ip / UDP(sport=1, dport=2)]
# Only the first of three fragments has ports. The other fragments are a flow without ports.
packets += fragment(eth / ip / UDP(sport=111, dport=2049) / Raw(b"f" * 3000), fragsize=1400)
# Packets that end before the ports, before the destination port, and before the flags.
whole = bytes(eth / ip / TCP(sport=50000, dport=50001, flags="S"))
packets += [Ether(whole[:34]), Ether(whole[:36]), Ether(whole[:46])]
# The header states a greater length than the packet has.
packets += [eth / IP(src=ip.src, dst=ip.dst, len=1400) / UDP(sport=9, dport=10, len=1380)]
# Packets that are not complete IPv4: a header that is cut off, a header of 16 bytes, four tags, IPv6, ARP, LLDP, an Ethernet
# header alone.
packets += [Ether(whole[:30]), eth / IP(src=ip.src, dst=ip.dst, ihl=4) / UDP(sport=1, dport=2)]
packets += [eth / Dot1AD(vlan=7) / Dot1AD(vlan=8) / Dot1Q(vlan=9) / Dot1Q(vlan=10) / ip / UDP(sport=1, dport=2)]
packets += [eth / ip6 / TCP(sport=1024, dport=443) for _ in range(4)]
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.2", hwsrc=eth.src) for _ in range(2)]
packets += [Ether(src=eth.src, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(b"\x02\x07\x04" + bytes(30))]
packets += [Ether(whole[:14])]
# The table is full: new flows find no room, and the flows in the table continue.
packets += [eth / IP(src="203.0.113.1", dst="192.0.2.2") / UDP(sport=i, dport=53) for i in range(6)]
packets += [eth / ip / UDP(sport=5353, dport=53) / Raw(b"z" * 100)]
# IPv6: a connection, extension headers, fragments, ICMPv6, tags. Only the first of three fragments has ports.
packets += [eth / IPv6(src="2001:db8::1", dst="2001:db8::2", tc=0x28) / TCP(**client, flags="S")]
packets += [eth / ip6 / TCP(**client, flags=flags) / Raw(b"6" * 100) for flags in ["A", "PA", "FA"]]
packets += [eth / ip6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / UDP(sport=5353, dport=53) / Raw(b"x" * i) for i in range(5)]
packets += [eth / ip6 / IPv6ExtHdrRouting(addresses=["2001:db8::3"]) / SCTP(sport=2905, dport=2906)]
packets += [eth / ip6 / AH(nh=17, payloadlen=4, icv=bytes(12)) / UDP(sport=500, dport=4500)]
packets += [Ether(bytes(f)) for f in fragment6(eth / ip6 / IPv6ExtHdrFragment(id=7) / UDP(sport=111, dport=2049) / Raw(b"f" * 3000), 1400)]
packets += [eth / ip6 / ICMPv6EchoRequest(id=1, seq=i, data=b"p" * 56) for i in range(3)]
packets += [eth / Dot1AD(vlan=7) / Dot1Q(vlan=8) / ip6 / UDP(sport=1, dport=2) / Raw(b"w" * 20), eth / ip6 / UDP(sport=1, dport=2)]
# Packets that end before the ports, and within an extension header. A packet with five extension headers, and one with nothing
# after the IPv6 header.
whole = bytes(eth / ip6 / TCP(sport=50000, dport=50001, flags="S"))
packets += [Ether(whole[:54]), Ether(bytes(eth / ip6 / IPv6ExtHdrHopByHop() / UDP())[:58])]
packets += [eth / ip6 / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / UDP(sport=3, dport=4)]
packets += [eth / IPv6(src=ip6.src, dst=ip6.dst, nh=59)]
# Packets that are not complete IPv6: a header that is cut off, and another version.
packets += [Ether(whole[:50]), eth / IPv6(src=ip6.src, dst=ip6.dst, version=5) / UDP(sport=1, dport=2)]
# The table of IPv6 flows is full.
packets += [eth / IPv6(src="2001:db8::bad", dst="2001:db8::2") / UDP(sport=i, dport=53) for i in range(5)]
packets += [eth / ip6 / TCP(**client, flags="R")]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
