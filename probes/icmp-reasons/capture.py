#!/usr/bin/python3
"""Makes capture.pcap: echoes, errors of several routers and hosts about several packets, and what is no proper message."""
from scapy.all import *
from scapy.layers.inet6 import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
packets = []


def padded(packet):
    """The frame as a link carries it, at least 60 bytes."""
    return Ether(bytes(packet).ljust(60, b"\0"))


def error(reporter, type, code, inside, size=28, **fields):
    return padded(eth / IP(src=reporter, dst="198.51.100.7") / ICMP(type=type, code=code, **fields) / Raw(bytes(inside)[:size]))


def error6(reporter, message, inside):
    return padded(eth / IPv6(src=reporter, dst="2001:db8::7") / message / Raw(bytes(inside)))


def tcp(destination, port=443):
    return IP(src="198.51.100.7", dst=destination) / TCP(sport=40000, dport=port)


def udp(destination, port=53):
    return IP(src="198.51.100.7", dst=destination) / UDP(sport=40000, dport=port) / Raw(bytes(40))


def udp6(destination, port=53):
    return IPv6(src="2001:db8::7", dst=destination) / UDP(sport=40000, dport=port) / Raw(bytes(40))


# Echoes: some pings are answered, and some are not.
for i in range(10):
    packets.append(padded(eth / IP(src="198.51.100.9", dst="198.51.100.7") / ICMP(type=8, id=1, seq=i) / Raw(bytes(56))))
    packets.append(padded(eth / IP(src="198.51.100.9", dst="198.51.100.7") / ICMP(type=0, id=2, seq=i) / Raw(bytes(56))))
for i in range(4):
    packets.append(padded(eth / Dot1Q(vlan=4) / IPv6(src="2001:db8::9", dst="2001:db8::7") / ICMPv6EchoRequest(id=1, seq=i)))
# A network that cannot be reached, a host to which a firewall forbids access, and a resolver whose port is closed.
packets += [error("192.0.2.254", 3, 0, tcp("203.0.113.1")) for _ in range(5)]
packets += [error("192.0.2.254", 3, 0, tcp("203.0.113.2", 80)) for _ in range(2)]
packets += [error("192.0.2.1", 3, 13, tcp("203.0.113.3", 22)) for _ in range(7)]
packets += [error("203.0.113.53", 3, 3, udp("203.0.113.53")) for _ in range(6)]
packets += [error6("2001:db8:1::53", ICMPv6DestUnreach(code=4), udp6("2001:db8:1::53")) for _ in range(6)]
packets += [error6("2001:db8:f::1", ICMPv6DestUnreach(code=0), udp6("2001:db8:2::1", 123)) for _ in range(3)]
# A tunnel on the path: path MTU discovery reports 1400 bytes, and then 1380.
packets += [error("192.0.2.9", 3, 4, tcp("203.0.113.4"), nexthopmtu=1400), error("192.0.2.10", 3, 4, tcp("203.0.113.4"), nexthopmtu=1380)]
packets += [error6("2001:db8:f::2", ICMPv6PacketTooBig(mtu=1280), IPv6(src="2001:db8::7", dst="2001:db8:3::1") / TCP(sport=40000, dport=443))]
# A traceroute, and a loop: routers report that the lifetime of a packet has ended.
packets += [error(f"192.0.2.{hop}", 11, 0, udp("203.0.113.5", 33433 + hop)) for hop in range(1, 6)]
packets += [error6("2001:db8:f::3", ICMPv6TimeExceeded(code=0), udp6("2001:db8:4::1", 33434)) for _ in range(3)]
# A redirect, a parameter problem, fragments that did not arrive in time, and an error about a packet with IP options.
packets += [error("198.51.100.1", 5, 1, tcp("203.0.113.6"), gw="198.51.100.2")]
packets += [error("192.0.2.1", 12, 0, IP(src="198.51.100.7", dst="203.0.113.7", proto=89) / Raw(bytes(8)))]
packets += [error("203.0.113.8", 11, 1, IP(src="198.51.100.7", dst="203.0.113.8", proto=17, frag=100) / Raw(b"f" * 8))]
packets += [error("203.0.113.9", 3, 3, IP(src="198.51.100.7", dst="203.0.113.9", options=[IPOption_NOP()] * 4) / UDP(sport=1, dport=69), size=32)]
packets += [error("192.0.2.1", 3, 1, IP(src="198.51.100.7", dst="203.0.113.10") / ICMP(type=8))]
# ICMPv6 after an extension header, neighbour discovery, and a type and a code without a name.
packets += [padded(eth / IPv6(src="fe80::1", dst="ff02::16", hlim=1) / IPv6ExtHdrHopByHop(options=[RouterAlert()]) / ICMPv6MLReport2())]
packets += [padded(eth / IPv6(src="2001:db8::9", dst="ff02::1:ff00:7") / ICMPv6ND_NS(tgt="2001:db8::7")) for _ in range(2)]
packets += [padded(eth / IPv6(src="2001:db8::7", dst="2001:db8::9") / ICMPv6ND_NA(tgt="2001:db8::7"))]
packets += [padded(eth / IP(src="198.51.100.9", dst="198.51.100.7") / ICMP(type=8, code=77) / Raw(bytes(8)))]
packets += [padded(eth / IP(src="198.51.100.9", dst="198.51.100.7") / ICMP(type=200, code=3) / Raw(bytes(8)))]
# Malformed messages: a header that the frame cuts off, a header that the IP length cuts off, errors with half a packet, with a
# packet of another version, or without a packet, and messages of the wrong family. The second fragment of a long echo is not a
# message.
packets += [Ether(bytes(eth / IP(src="198.51.100.9", dst="198.51.100.7") / ICMP(type=8))[:40])]
packets += [padded(eth / IP(src="198.51.100.9", dst="198.51.100.7", len=24) / ICMP(type=8))]
packets += [error("192.0.2.1", 3, 1, tcp("203.0.113.11"), size=16)]
packets += [error("192.0.2.1", 3, 1, udp6("2001:db8::1"), size=48)]
packets += [error("192.0.2.1", 3, 1, b"")]
packets += [error6("2001:db8:f::1", ICMPv6DestUnreach(code=0), bytes(udp6("2001:db8:2::1"))[:20])]
packets += [padded(eth / IP(src="198.51.100.9", dst="198.51.100.7", proto=58) / Raw(bytes(ICMPv6EchoRequest())))]
packets += [padded(eth / IPv6(src="2001:db8::9", dst="2001:db8::7", nh=1) / Raw(bytes(ICMP(type=8))))]
packets += [padded(eth / IP(src="198.51.100.9", dst="198.51.100.7", proto=1, frag=185) / Raw(bytes(100)))]
packets += [padded(eth / tcp("198.51.100.9")), padded(eth / ARP(psrc="198.51.100.9", pdst="198.51.100.7", hwsrc=eth.src))]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
