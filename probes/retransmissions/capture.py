#!/usr/bin/python3
"""Makes capture.pcap, what comes in, and egress.pcap, what goes out: transfers with losses on either side of this interface,
with overtaking, and with what looks like a retransmission and is none."""
from scapy.all import *

FAR, NEAR = "02:00:00:00:00:01", "02:00:00:00:00:02"
entered, left = [], []
clock = 1700000000.0


class Side:
    """One side of a connection: its address and port, the next number, and the packets of its direction."""

    def __init__(self, address, port, seq, packets, tag=None):
        self.address, self.port, self.seq, self.packets, self.tag, self.peer = address, port, seq, packets, tag, None

    def send(self, after, flags="A", payload=b"", back=0, ahead=0, window=500, keep=False, cut=None, **fields):
        """Sends what comes next; `back` bytes before that, or `ahead` bytes behind it. `keep`: the next one sends it again."""
        global clock
        clock += after
        seq = self.seq - back + ahead
        ethernet = Ether(src=FAR, dst=NEAR) if self.packets is entered else Ether(src=NEAR, dst=FAR)
        if self.tag:
            ethernet /= Dot1Q(vlan=self.tag)
        ip = IPv6(src=self.address, dst=self.peer.address) if ":" in self.address else IP(src=self.address, dst=self.peer.address)
        ack = self.peer.acked % 2**32 if "A" in flags else 0
        tcp = TCP(sport=self.port, dport=self.peer.port, flags=flags, seq=seq % 2**32, ack=ack, window=window, **fields)
        frame = bytes(ethernet / ip / tcp / Raw(payload))
        # The link pads short frames. The padding is not data.
        packet = Ether(frame[:cut] if cut else frame.ljust(60, b"\0"))
        packet.time = clock
        self.packets.append(packet)
        length = len(payload) + flags.count("S") + flags.count("F")
        if not keep:
            self.seq = max(self.seq, seq + length)

    def acknowledge(self, after, up_to=None, **fields):
        self.peer.acked = self.peer.seq if up_to is None else up_to
        self.send(after, **fields)


def connection(first, second):
    first.peer, second.peer = second, first
    first.acked, second.acked = first.seq, second.seq
    return first, second


def data(letter, size=1000):
    return letter.encode() * size


# An upload without losses. Its sequence numbers wrap to 0.
client, server = connection(Side("198.51.100.7", 40000, 2**32 - 5000, entered), Side("192.0.2.80", 443, 77, left))
for i in range(20):
    client.send(0.0001, "PA", data("a"))
    if i % 2:
        server.acknowledge(0.0001)

# A download from this host over IPv6 that loses two segments after this host. One of them is sent again needlessly.
client, server = connection(Side("2001:db8::7", 40001, 5, entered), Side("2001:db8:1::80", 443, 2**31 - 3000, left))
for i in range(10):
    server.send(0.0001, "A", data("b"))
client.acknowledge(0.02, up_to=server.seq - 8000)
server.send(0.2, "A", data("b"), back=8000)
server.send(0.0001, "A", data("b"), back=5000)
client.acknowledge(0.02)
server.send(0.2, "A", data("b"), back=5000)

# An upload that loses a segment before this host; the segment comes 30 ms late, while sequence numbers wrap to 0. Then two gaps
# are open at a time, and one of them is filled from its middle.
client, server = connection(Side("198.51.100.7", 40002, 2**32 - 2500, entered, tag=4), Side("192.0.2.80", 443, 77, left, tag=4))
client.send(0.001, "A", data("c"))
client.send(0.001, "A", data("c"), ahead=1000)
client.send(0.0001, "A", data("c"), ahead=3000)
client.send(0.030, "A", data("c"), back=6000)
client.send(0.010, "A", data("c"), back=3000)
client.send(0.010, "A", data("c"), back=4000)
client.send(0.010, "A", data("c"), back=2000)
server.acknowledge(0.001)

# Reordering: a segment arrives 0.2 ms after the segment that follows it. Twice, a segment arrives after the two that follow it.
client, server = connection(Side("198.51.100.7", 40003, 1000, entered), Side("192.0.2.80", 443, 77, left))
for i in range(5):
    client.send(0.01, "A", data("d"))
    client.send(0.0001, "A", data("d"), ahead=1000)
    client.send(0.0002, "A", data("d"), back=2000)
    if i >= 3:
        client.send(0.01, "A", data("d"), ahead=1000)
        client.send(0.0001, "A", data("d"))
        client.send(0.0002, "A", data("d"), back=3000)

# A quiet connection: keep-alives without data and with one byte get answers. Then a byte of data is lost.
client, server = connection(Side("198.51.100.7", 40004, 1000, entered), Side("192.0.2.22", 22, 77, left))
client.send(0.01, "PA", b"x")
server.acknowledge(0.001)
for payload in [b"", b"\0"]:
    client.send(45, "A", payload, back=1, keep=True)
    server.acknowledge(0.001)
server.send(0.01, "PA", b"y")
server.send(0.3, "PA", b"y", back=1)
client.acknowledge(0.02)

# The receiver closes its window. The sender probes the window with one byte and without data, and then continues.
client, server = connection(Side("198.51.100.7", 40005, 1000, entered), Side("192.0.2.80", 443, 77, left))
server.send(0.01, "A", data("e"))
client.acknowledge(0.01, window=0)
server.send(0.2, "A", b"e")
client.send(0.01, "A", window=0)
server.send(0.4, "A", b"e", back=1)
client.send(0.01, "A", window=0)
server.send(0.8, "A", back=1, keep=True)
client.send(0.01, "A", window=0)
client.send(0.1, "A", window=500)
server.send(0.001, "A", data("e"), back=1)
client.acknowledge(0.01)

# SYN, SYN-ACK and FIN are sent again. Then another connection uses the port with a lower sequence number.
client, server = connection(Side("198.51.100.7", 40006, 900000, entered), Side("192.0.2.80", 443, 77, left))
client.send(0.01, "S", options=[("MSS", 1460)])
client.send(1, "S", back=1, options=[("MSS", 1460)])
server.acknowledge(0.001, flags="SA")
server.send(1, "SA", back=1)
client.acknowledge(0.02)
client.send(0.01, "FPA", data("f", 500))
client.send(0.4, "FPA", data("f", 500), back=501)
server.acknowledge(0.001, flags="FA")
client.acknowledge(0.02)
client, server = connection(Side("198.51.100.7", 40006, 5000, entered), Side("192.0.2.80", 443, 700077, left))
client.send(10, "S")
server.acknowledge(0.001, flags="SA")
client.acknowledge(0.02)
client.send(0.001, "PA", data("f", 500))
server.acknowledge(0.001)

# Short and long paths: the handshake tells round trips of 0.1 and of 200 ms between this host and the client. Lost segments
# arrive again after one and a half round trips, and overtaken segments after a third of a round trip.
for port, round_trip in [(40008, 0.0001), (40009, 0.2)]:
    client, server = connection(Side("198.51.100.7", port, 1000, entered), Side("192.0.2.80", 443, 77, left))
    client.send(0.01, "S")
    server.acknowledge(0.00002, flags="SA")
    client.acknowledge(round_trip)
    for late in [1.5, 0.3, 1.5]:
        client.send(0.01, "A", data("h"))
        client.send(0.00001, "A", data("h"), ahead=1000)
        client.send(round_trip * late, "A", data("h"), back=2000)
        server.acknowledge(0.00001)

# A segment that repeats old data and has new data as well.
client, server = connection(Side("198.51.100.7", 40007, 1000, entered), Side("192.0.2.80", 443, 77, left))
client.send(0.01, "A", data("g", 600))
client.send(0.3, "A", data("g", 1000), back=400)
server.acknowledge(0.001)

# Packets that the probe ignores: resets, headers that are cut off or too short, later fragments.
client.send(0.01, "R", back=1200, keep=True)
client.send(0.01, "A", data("g"), back=1000, cut=50)
client.send(0.01, "A", data("g"), back=1000, keep=True, dataofs=3)
fragment = Ether(src=FAR, dst=NEAR) / IP(src="198.51.100.7", dst="192.0.2.80", proto=6, frag=60) / Raw(bytes(400))
fragment.time = clock + 0.01
entered.append(fragment)
for file, packets in [("capture.pcap", entered), ("egress.pcap", left)]:
    wrpcap(file, packets)
