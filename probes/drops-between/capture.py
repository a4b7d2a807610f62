#!/usr/bin/python3
"""Makes capture.pcap, what comes in, and egress.pcap, what goes out: some conversations whole, some with losses."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
out = Ether(src="02:00:00:00:00:02", dst="02:00:00:00:00:03")
whole = IP(src="192.0.2.1", dst="198.51.100.1") / TCP(sport=1024, dport=80)
lossy = IP(src="192.0.2.2", dst="198.51.100.1") / UDP(sport=5004, dport=5004) / Raw(b"v" * 160)
six = IPv6(src="2001:db8::1", dst="2001:db8:1::1") / UDP(sport=1, dport=2) / Raw(b"x" * 50)
refused = IP(src="203.0.113.66", dst="198.51.100.1") / TCP(sport=6, dport=23, flags="S")
local = IP(src="198.51.100.254", dst="192.0.2.1") / ICMP(type=11, code=0) / Raw(bytes(28))
fragment = IP(src="192.0.2.3", dst="198.51.100.1", proto=17, frag=10) / Raw(b"f" * 40)


def hop(packet):
    """The packet as the next link carries it: another hop has been counted."""
    packet = packet.copy()
    packet.ttl -= 1
    return packet


entered, left = [], []
for i in range(30):
    entered.append(eth / whole)
    left.append(out / hop(whole))
for i in range(40):
    entered.append(eth / lossy)
    if i % 5:
        left.append(out / hop(lossy))
for i in range(12):
    entered.append(eth / Dot1Q(vlan=4) / six)
    if i != 7:
        left.append(out / six)
entered += [eth / refused for _ in range(9)]
left += [out / local for _ in range(3)]
entered += [eth / fragment for _ in range(2)]
left += [out / hop(fragment) for _ in range(2)]
# A packet that is not IP, and an IP header that is cut off.
entered += [eth / ARP(psrc="192.0.2.1", pdst="192.0.2.254", hwsrc=eth.src), Ether(bytes(eth / whole)[:30])]
for file, packets, start in [("capture.pcap", entered, 0), ("egress.pcap", left, 0.0005)]:
    for i, packet in enumerate(packets):
        packet.time = 1700000000 + start + i * 0.001
    wrpcap(file, packets)
