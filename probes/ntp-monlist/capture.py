#!/usr/bin/python3
"""Makes capture.pcap, what comes to a time server (and some answers of other servers), and egress.pcap, its answers:
clients, monlist queries with forged sources, queries of mode 6, messages that are too short or cut off."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
out = Ether(src=eth.dst, dst=eth.src)
SERVER, SERVER6 = "192.0.2.123", "2001:db8::123"
capture, egress = [], []
time = 1700000000


def comes(packet):
    global time
    time += 0.01
    packet = Ether(bytes(packet))
    packet.time = time
    capture.append(packet)


def goes(packet):
    global time
    time += 0.001
    packet = Ether(bytes(packet))
    packet.time = time
    egress.append(packet)


def to(source, port=123):
    return IP(src=source, dst=SERVER) / UDP(sport=port, dport=123)


def back(destination, port=123):
    return IP(src=SERVER, dst=destination) / UDP(sport=123, dport=port)


def mode7(code, response=0, sequence=0, items=0, size=0, implementation=3):
    first = 0x17 | (0xc0 if response else 0)
    return bytes([first, sequence, implementation, code]) + struct.pack(">HH", items, size) + bytes(items * size)


def mode6(operation, response=0, data=b""):
    return bytes([0x16, operation | (0x80 if response else 0)]) + struct.pack(">HHHHH", 1, 0, 0, 0, len(data)) + data


# Clients ask servers for the time.
for i in range(10):
    comes(eth / to(f"198.51.100.{i}", 40000 + i) / Raw(b"\x23" + bytes(47)))
    goes(out / back(f"198.51.100.{i}", 40000 + i) / Raw(b"\x24" + bytes(47)))
# Monlist: a query of 8 bytes, padded to the smallest frame, makes the server send 20 packets of 440 bytes to the victim.
for i in range(3):
    comes(Ether(bytes(eth / to("203.0.113.80", 80) / Raw(mode7(42))).ljust(60, b"\0")))
    for sequence in range(20):
        goes(out / back("203.0.113.80", 80) / Raw(mode7(42, 1, sequence, 6, 72)))
# The older code of monlist, with the longer query of ntpdc. Both sides use port 123, so only the message itself tells an answer
# from a query.
comes(eth / to("203.0.113.123") / Raw(mode7(20, implementation=2) + bytes(40)))
for sequence in range(4):
    goes(out / back("203.0.113.123") / Raw(mode7(20, 1, sequence, 15, 32, implementation=2)))
# Queries that nobody answers, with VLAN tags and over IPv6.
for i in range(5):
    comes(eth / Dot1Q(vlan=7) / to(f"203.0.113.{i}", 1053) / Raw(mode7(42)))
    comes(eth / IPv6(src="2001:db8::bad", dst=SERVER6) / UDP(sport=1053, dport=123) / Raw(mode7(42)))
# Other queries of mode 7 (peers) and of mode 6 (variables, list of clients), with their answers.
comes(eth / to("198.51.100.200", 50000) / Raw(mode7(0) + bytes(32)))
goes(out / back("198.51.100.200", 50000) / Raw(mode7(0, 1, 0, 4, 32)))
for i in range(4):
    comes(eth / to("203.0.113.66", 1234) / Raw(mode6(2)))
    goes(out / back("203.0.113.66", 1234) / Raw(mode6(2, 1, b"version=\"ntpd 4.2.6\"" * 20)))
comes(eth / to("203.0.113.67", 1234) / Raw(mode6(10, 0, b"nonce=1234")))
for i in range(6):
    goes(out / back("203.0.113.67", 1234) / Raw(mode6(10, 1, b"addr.0=192.0.2.1:123" * 22)))
# The network of the victim receives answers to questions that it has not asked.
for sequence in range(10):
    comes(eth / IP(src="192.0.2.222", dst="198.51.100.77") / UDP(sport=123, dport=80) / Raw(mode7(42, 1, sequence, 6, 72)))
# Messages in the symmetric, broadcast and reserved modes.
comes(eth / to("198.51.100.50") / Raw(b"\x21" + bytes(47)))
comes(eth / to("198.51.100.51") / Raw(b"\x22" + bytes(67)))
comes(eth / IP(src="198.51.100.52", dst="224.0.1.1") / UDP(sport=123, dport=123) / Raw(b"\x25" + bytes(47)))
comes(eth / to("198.51.100.53") / Raw(b"\x20" + bytes(47)))
# Messages that are too short for their mode: an ordinary one, mode 6, mode 7, one that is short by the IP length although the
# frame is padded, and one without payload.
for payload in [b"\x23" + bytes(30), mode6(2)[:11], mode7(42)[:7], mode7(42)[:3], b""]:
    comes(Ether(bytes(eth / to("198.51.100.60", 40000) / Raw(payload)).ljust(60, b"\0")))
# A message that ends within its header, a UDP length that is too large, and a later fragment, which has no ports.
comes(Ether(bytes(eth / to("198.51.100.61", 40000) / Raw(mode7(42)))[:44]))
comes(eth / IP(src="203.0.113.90", dst=SERVER) / UDP(sport=80, dport=123, len=600) / Raw(mode7(42)))
comes(eth / IP(src="203.0.113.91", dst=SERVER, frag=100, proto=17) / Raw(mode7(42) * 4))
# Packets that are not NTP: other ports, TCP.
comes(eth / IP(src="203.0.113.92", dst=SERVER) / UDP(sport=53, dport=1123) / Raw(mode7(42)))
comes(eth / IP(src="203.0.113.92", dst=SERVER) / TCP(sport=53, dport=123) / Raw(mode7(42)))
wrpcap("capture.pcap", capture)
wrpcap("egress.pcap", egress)
