#!/usr/bin/python3
"""Makes capture.pcap: every kind of tunnel, over both families, and what looks like a tunnel but is none."""
from scapy.all import *
from scapy.contrib.geneve import GENEVE

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
out4 = IP(src="198.51.100.1", dst="198.51.100.2")
out6 = IPv6(src="2001:db8:1::1", dst="2001:db8:1::2")
inner_eth = Ether(src="02:00:00:00:01:01", dst="02:00:00:00:01:02")
tcp = IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=40000, dport=80)
udp6 = IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=40000, dport=53) / Raw(b"q" * 30)


def vxlan(vni):
    return UDP(sport=50000, dport=4789) / VXLAN(vni=vni, flags=8)


packets = []
packets += [eth / out4 / vxlan(77) / inner_eth / tcp / Raw(b"x" * i) for i in range(12)]
packets += [eth / out4 / vxlan(78) / inner_eth / Dot1Q(vlan=9) / udp6 for _ in range(5)]
packets += [eth / out6 / vxlan(77) / inner_eth / tcp for _ in range(3)]
packets += [eth / out4 / vxlan(77) / inner_eth / ARP(psrc="10.0.0.1", pdst="10.0.0.2", hwsrc=inner_eth.src) for _ in range(2)]
packets += [eth / out4 / UDP(sport=50001, dport=6081) / GENEVE(vni=900, proto=0x6558) / inner_eth / tcp for _ in range(4)]
packets += [eth / out4 / UDP(sport=50001, dport=6081) / GENEVE(vni=901, proto=0x86DD, optionlen=2) / Raw(bytes(8)) / udp6 for _ in range(3)]
packets += [eth / Dot1Q(vlan=4) / out4 / GRE(proto=0x0800) / tcp for _ in range(6)]
packets += [eth / out4 / GRE(key_present=1, key=4242, proto=0x86DD) / udp6 for _ in range(5)]
packets += [eth / out6 / GRE(key_present=1, key=4242, seqnum_present=1, sequence_number=i, proto=0x6558) / inner_eth / tcp for i in range(2)]
packets += [eth / out4 / tcp for _ in range(3)]  # protocol 4: IP in IP
packets += [eth / IP(src="198.51.100.1", dst="198.51.100.2", proto=41) / udp6 for _ in range(4)]
packets += [eth / IPv6(src="2001:db8:1::1", dst="2001:db8:1::2", nh=4) / tcp for _ in range(3)]
# PPTP (GRE version 1), VXLAN without a VNI, a tunnel header that is cut off, an inner packet that ends within its IP header,
# and a packet without a tunnel.
packets += [eth / out4 / GRE(version=1, key_present=1, key=5, proto=0x880B) / Raw(bytes(20))]
packets += [eth / out4 / UDP(sport=50000, dport=4789) / Raw(bytes(40))]
packets += [Ether(bytes(eth / out4 / vxlan(77) / inner_eth / tcp)[:46])]
packets += [Ether(bytes(eth / out4 / vxlan(79) / inner_eth / tcp)[:80])]
packets += [eth / tcp, eth / udp6, eth / ARP(psrc="10.0.0.1", pdst="10.0.0.2", hwsrc=eth.src)]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
