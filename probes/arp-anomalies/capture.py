#!/usr/bin/python3
"""Makes capture.pcap: requests and replies, an address that two machines claim, a poisoner, a sweep, probes and
announcements, messages with wrong lengths and addresses, and frames that are cut off."""
from scapy.all import *

GATEWAY, HOST, BAD = "02:00:00:00:00:fe", "02:00:00:00:00:10", "02:00:00:00:0b:ad"
ALL = "ff:ff:ff:ff:ff:ff"


def arp(op, mac, ip, target, source=None, to=ALL, **fields):
    return Ether(src=source or mac, dst=to) / ARP(op=op, hwsrc=mac, psrc=ip, pdst=target, **fields)


packets = []
# A host asks for the address of its gateway from time to time, and the gateway answers.
for i in range(10):
    packets += [arp(1, HOST, "192.0.2.16", "192.0.2.254"), arp(2, GATEWAY, "192.0.2.254", "192.0.2.16", to=HOST, hwdst=HOST)]
# An attacker claims the gateway's address in replies to no request, while the gateway goes on replying. So the address changes
# its MAC again and again.
for i in range(6):
    packets += [arp(2, BAD, "192.0.2.254", "192.0.2.16", to=HOST, hwdst=HOST)]
    packets += [arp(2, GATEWAY, "192.0.2.254", "192.0.2.16", to=HOST, hwdst=HOST)]
packets += [arp(2, BAD, "192.0.2.16", "192.0.2.254", to=ALL, hwdst=GATEWAY)]
# A host sweeps 100 addresses from behind a bridge: the sender's MAC in ARP is not the source of the frame.
packets += [arp(1, BAD, "192.0.2.66", f"192.0.2.{i}") for i in range(100, 180)]
packets += [arp(1, "02:00:00:00:00:77", "192.0.2.77", f"192.0.2.{i}", source=BAD) for i in range(180, 200)]
# A machine starts: it probes its address, and announces it. The same address in another VLAN counts as another address.
packets += [arp(1, "02:00:00:00:00:20", "0.0.0.0", "192.0.2.32") for _ in range(3)]
packets += [arp(1, "02:00:00:00:00:20", "192.0.2.32", "192.0.2.32") for _ in range(2)]
packets += [arp(2, "02:00:00:00:00:21", "192.0.2.33", "192.0.2.33")]
tag = Ether(src="02:00:00:00:00:22", dst=ALL) / Dot1Q(vlan=5, prio=3)
packets += [tag / ARP(op=1, hwsrc="02:00:00:00:00:22", psrc="192.0.2.32", pdst="192.0.2.1")]
packets += [Ether(src="02:00:00:00:00:23", dst=ALL) / Dot1AD(vlan=6) / Dot1Q(vlan=5) / ARP(op=1, hwsrc="02:00:00:00:00:23", psrc="192.0.2.32", pdst="192.0.2.1")]
# Messages contain addresses that no host may have.
packets += [arp(2, "01:00:5e:00:00:01", "192.0.2.50", "192.0.2.16", source=BAD, to=HOST)]
packets += [arp(2, "00:00:00:00:00:00", "192.0.2.51", "192.0.2.16", source=BAD, to=HOST)]
packets += [arp(1, HOST, "224.0.0.1", "192.0.2.16"), arp(1, HOST, "127.0.0.1", "192.0.2.16"), arp(1, HOST, "255.255.255.255", "192.0.2.16")]
# Messages with other operations, with other types of addresses, and with other lengths of addresses.
packets += [arp(8, HOST, "192.0.2.16", "0.0.0.0"), arp(9, HOST, "192.0.2.16", "0.0.0.0")]
packets += [Ether(src=HOST, dst=ALL) / ARP(hwtype=6, hwlen=8, plen=4, op=1) / Raw(bytes(24))]
packets += [Ether(src=HOST, dst=ALL, type=0x0806) / Raw(bytes.fromhex("0001 86dd 06 10 0001".replace(" ", "")) + bytes(44))]
packets += [Ether(src=HOST, dst=ALL, type=0x0806) / Raw(bytes.fromhex("0001 0800 00 04 0001".replace(" ", "")) + bytes(20))]
# Frames that end within the addresses, and right after the Ethernet header.
whole = bytes(arp(1, HOST, "192.0.2.16", "192.0.2.254"))
packets += [Ether(whole[:38]), Ether(whole[:14]), Ether(whole[:41])]
# Frames that are not ARP: RARP, IPv4, neighbour discovery.
packets += [Ether(src=HOST, dst=ALL, type=0x8035) / ARP(op=3, hwsrc=HOST)]
packets += [Ether(src=HOST, dst=GATEWAY) / IP(src="192.0.2.16", dst="192.0.2.254") / ICMP()]
packets += [Ether(src=HOST, dst="33:33:ff:00:00:01") / IPv6(src="2001:db8::1", dst="ff02::1:ff00:1") / ICMPv6ND_NS(tgt="2001:db8::1")]
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.01
wrpcap("capture.pcap", packets)
