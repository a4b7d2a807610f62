#!/usr/bin/python3
"""Makes capture.pcap, what comes in, and egress.pcap, what goes out: handshakes of servers on this side, of clients on this
side, and of both on the other side of a mirror port."""
from scapy.all import *

near, far = "02:00:00:00:00:01", "02:00:00:00:00:02"
entered, left = [], []
START = 1700000000


def send(packets, at, packet):
    packet = Ether(bytes(packet))
    packet.time = START + at
    packets.append(packet)


def segment(source, destination, sport, dport, flags, seq, ack=0, payload=b"", tag=None, **fields):
    ip = IPv6 if ":" in source else IP
    packet = Ether(src=far, dst=near)
    if tag:
        packet /= Dot1Q(vlan=tag)
    return packet / ip(src=source, dst=destination) / TCP(sport=sport, dport=dport, flags=flags, seq=seq % 2**32, ack=ack % 2**32, **fields) / Raw(payload)


def handshake(there, back, at, client, server, sport, dport, to_server, to_client, isn=1000, server_isn=5000, tag=None):
    """Three packets: `there` is the list of those that the client sends, `back` of those that the server sends."""
    send(there, at, segment(client, server, sport, dport, "S", isn, tag=tag))
    send(back, at + to_server, segment(server, client, dport, sport, "SA", server_isn, isn + 1, tag=tag))
    send(there, at + to_server + to_client, segment(client, server, sport, dport, "A", isn + 1, server_isn + 1, tag=tag))


# A server in this network answers at once, and its clients are 20 ms away. The sequence numbers of one client begin right
# before they wrap to 0.
for i in range(20):
    handshake(entered, left, i * 0.01, "198.51.100.7", "192.0.2.80", 40000 + i, 443, 0.00005, 0.020, isn=2**32 - 1 if i == 3 else i)
# Clients in this network use a server that is 80 ms away, over IPv6 and with a VLAN tag.
for i in range(10):
    handshake(left, entered, 0.3 + i * 0.01, "2001:db8::7", "2001:db8:1::80", 41000 + i, 80, 0.080, 0.0001, tag=4 if i % 2 else None)
# A mirror port receives both directions: the server is 3 ms away, and the client 30 ms.
for i in range(15):
    handshake(entered, entered, 0.5 + i * 0.001, "198.51.100.9", "203.0.113.25", 42000 + i, 25, 0.003, 0.030)
# The first SYN is lost after this host, and sent again a second later. Of another connection, the SYN-ACK is lost and sent
# again.
send(entered, 1.0, segment("198.51.100.9", "203.0.113.25", 42100, 25, "S", 7))
handshake(entered, entered, 2.0, "198.51.100.9", "203.0.113.25", 42100, 25, 0.003, 0.030, isn=7)
send(entered, 1.1, segment("198.51.100.9", "203.0.113.25", 42101, 25, "S", 7))
send(entered, 1.103, segment("203.0.113.25", "198.51.100.9", 25, 42101, "SA", 9, 8))
send(entered, 2.103, segment("203.0.113.25", "198.51.100.9", 25, 42101, "SA", 9, 8))
send(entered, 2.133, segment("198.51.100.9", "203.0.113.25", 42101, 25, "A", 8, 10))
# The client's ACK is lost, so its first data complete the handshake.
send(entered, 1.2, segment("198.51.100.9", "203.0.113.25", 42102, 25, "S", 7))
send(entered, 1.203, segment("203.0.113.25", "198.51.100.9", 25, 42102, "SA", 9, 8))
send(entered, 1.303, segment("198.51.100.9", "203.0.113.25", 42102, 25, "PA", 8, 10, b"EHLO"))
# TCP Fast Open: the SYN carries data, and the server acknowledges them.
send(entered, 1.4, segment("198.51.100.9", "203.0.113.25", 42103, 25, "S", 7, payload=b"x" * 100))
send(entered, 1.403, segment("203.0.113.25", "198.51.100.9", 25, 42103, "SA", 9, 108))
send(entered, 1.433, segment("198.51.100.9", "203.0.113.25", 42103, 25, "A", 108, 10))
# A closed port in this network and a closed port outside, clients that abort before and after the answer, and a server that
# never answers.
for i in range(3):
    send(entered, 1.5 + i * 0.01, segment("198.51.100.7", "192.0.2.80", 43000 + i, 23, "S", 7))
    send(left, 1.5001 + i * 0.01, segment("192.0.2.80", "198.51.100.7", 23, 43000 + i, "RA", 0, 8))
send(left, 1.6, segment("2001:db8::7", "2001:db8:1::80", 43010, 81, "S", 7))
send(entered, 1.68, segment("2001:db8:1::80", "2001:db8::7", 81, 43010, "RA", 0, 8))
send(entered, 1.7, segment("198.51.100.7", "192.0.2.80", 43020, 443, "S", 7))
send(left, 1.70005, segment("192.0.2.80", "198.51.100.7", 443, 43020, "SA", 9, 8))
send(entered, 1.72, segment("198.51.100.7", "192.0.2.80", 43020, 443, "R", 8))
send(entered, 1.73, segment("198.51.100.7", "192.0.2.80", 43021, 443, "S", 7))
send(entered, 1.74, segment("198.51.100.7", "192.0.2.80", 43021, 443, "R", 8))
for i in range(4):
    send(entered, 1.8 + (2**i - 1), segment("198.51.100.7", "192.0.2.99", 43030, 443, "S", 7))
# A client uses the same port with another sequence number: this is another handshake.
handshake(entered, left, 9.9, "198.51.100.7", "192.0.2.99", 43030, 443, 0.0005, 0.020, isn=77777)
# An answer with a wrong acknowledgement number, an ACK with a wrong number, and packets of a connection that began before the
# capture.
send(entered, 2.5, segment("198.51.100.9", "203.0.113.25", 42104, 25, "S", 7))
send(entered, 2.503, segment("203.0.113.25", "198.51.100.9", 25, 42104, "SA", 9, 500))
send(entered, 2.504, segment("203.0.113.25", "198.51.100.9", 25, 42104, "RA", 9, 500))
send(entered, 2.6, segment("198.51.100.9", "203.0.113.25", 42000, 25, "A", 1005, 5005, b"x" * 100))
send(entered, 2.7, segment("203.0.113.26", "198.51.100.9", 25, 42105, "SA", 9, 500))
# Packets that the probe ignores: a TCP header that is cut off, a TCP header with a wrong length, a later fragment, UDP.
send(entered, 2.8, bytes(segment("198.51.100.9", "203.0.113.25", 42106, 25, "S", 7))[:50])
send(entered, 2.81, segment("198.51.100.9", "203.0.113.25", 42107, 25, "S", 7, dataofs=3))
send(entered, 2.82, Ether(src=far, dst=near) / IP(src="198.51.100.9", dst="203.0.113.25", frag=50, proto=6) / Raw(bytes(40)))
send(entered, 2.83, Ether(src=far, dst=near) / IP(src="198.51.100.9", dst="203.0.113.25") / UDP(sport=42000, dport=25) / Raw(bytes(40)))
for file, packets in [("capture.pcap", entered), ("egress.pcap", left)]:
    wrpcap(file, sorted(packets, key=lambda packet: packet.time))
