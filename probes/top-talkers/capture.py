#!/usr/bin/python3
"""Makes capture.pcap: one loud address, some that are quieter, one with many small packets, both IP families."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
packets = []


def ip(host):
    return IP(src=f"198.51.100.{host}", dst="192.0.2.1")


def ip6(host):
    return IPv6(src=f"2001:db8::{host:x}", dst="2001:db8:1::1")


packets += [eth / ip(1) / TCP(sport=443, dport=40000, flags="A") / Raw(b"d" * 1400) for _ in range(40)]
packets += [eth / ip(2) / UDP(sport=5000 + i, dport=53) for i in range(60)]
packets += [eth / ip6(1) / TCP(sport=443, dport=40001, flags="A") / Raw(b"d" * 1200) for _ in range(20)]
for host in range(10, 30):
    packets += [eth / ip(host) / ICMP() / Raw(b"p" * 56)]
for host in range(10, 20):
    packets += [eth / Dot1Q(vlan=3) / ip6(host) / IPv6ExtHdrHopByHop() / UDP() / Raw(b"u" * 20)] * 2
# The probe also counts a later fragment, and a packet that is cut off after the IP header.
packets += [eth / IP(src="198.51.100.1", dst="192.0.2.1", frag=185, proto=17) / Raw(b"f" * 500)]
packets += [Ether(bytes(eth / ip(2) / UDP())[:34])]
# Packets that are not IP: ARP, an IP header that is cut off, a wrong version.
packets += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.9") for _ in range(3)]
packets += [Ether(bytes(eth / ip(3) / UDP())[:30])]
packets += [eth / IP(src="198.51.100.3", dst="192.0.2.1", version=7) / UDP()]
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
