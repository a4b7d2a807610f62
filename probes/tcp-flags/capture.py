#!/usr/bin/python3
"""Makes capture.pcap: connections from begin to end, a SYN flood from forged addresses, scans with wrong flags."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
client, server = "198.51.100.7", "192.0.2.80"
packets = []


def tcp(port, flags, payload=b""):
    return eth / IP(src=client, dst=server) / TCP(sport=port, dport=443, flags=flags) / Raw(payload)


def tcp6(port, flags, payload=b""):
    return eth / IPv6(src="2001:db8::7", dst="2001:db8::80") / TCP(sport=port, dport=80, flags=flags) / Raw(payload)


# Ten connections over IPv4 and five over IPv6, each with a handshake, a request and an end. The second connection sends its SYN
# twice.
for i in range(10):
    packets += [tcp(40000 + i, "S")] * (2 if i == 1 else 1)
    packets += [tcp(40000 + i, "A"), tcp(40000 + i, "PA", b"GET / HTTP/1.0\r\n\r\n"), tcp(40000 + i, "FA")]
for i in range(5):
    packets += [tcp6(41000 + i, "SEC"), tcp6(41000 + i, "A"), tcp6(41000 + i, "PA", b"x" * 500), tcp6(41000 + i, "FPA")]
# A client resets connections after the SYN-ACK, as half-open scans do.
for i in range(3):
    packets += [tcp(42000 + i, "S"), tcp(42000 + i, "R")]
# A SYN flood: nobody answers.
for i in range(60):
    packets += [eth / IP(src=f"203.0.113.{i + 1}", dst="192.0.2.25") / TCP(sport=1024 + 7 * i, dport=25, flags="S")]
# Packets that servers send, and combinations of flags that TCP forbids.
packets += [eth / IP(src="192.0.2.9", dst=client) / TCP(sport=80, dport=5000 + i, flags="SA") for i in range(4)]
packets += [eth / IP(src="192.0.2.9", dst=client) / TCP(sport=80, dport=6000 + i, flags="RA") for i in range(2)]
packets += [tcp(43000, ""), tcp(43001, "F"), tcp(43002, "FPU"), tcp(43003, "SF"), tcp(43004, "FSRPAU")]
packets += [eth / Dot1Q(vlan=4) / IP(src=client, dst=server) / TCP(sport=43005, dport=443, flags="UA")]
# Packets that the probe ignores: a packet that is not TCP, a TCP header that is cut off, a TCP header with a wrong length, a
# later fragment.
packets += [eth / IP(src=client, dst=server) / UDP(sport=1, dport=443)]
packets += [Ether(bytes(tcp(44000, "S"))[:50])]
packets += [eth / IP(src=client, dst=server) / TCP(sport=44001, dport=443, flags="S", dataofs=3)]
packets += [eth / IP(src=client, dst=server, frag=50, proto=6) / Raw(bytes(40))]
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
