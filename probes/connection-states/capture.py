#!/usr/bin/python3
"""Makes capture.pcap, what comes in, and egress.pcap, what goes out: connections in all states, which end in all ways; and a
pause after which those that went no further are over."""
from scapy.all import *

FAR, NEAR = "02:00:00:00:00:01", "02:00:00:00:00:02"
entered, left = [], []
clock = 1700000000.0


class Connection:
    """A connection to this host, or from it if `here`, or between others, all of whose packets come in (a mirror port)."""

    def __init__(self, client, server, port, here=False, mirrored=False, tag=None):
        self.client, self.server, self.port, self.tag = client, server, port, tag
        self.seq, self.ack = int(clock * 1000) % 2**31, 900
        self.forth, self.back = (left, entered) if here else (entered, entered) if mirrored else (entered, left)

    def send(self, flags, payload=b"", forth=True, again=False, cut=None, **fields):
        global clock
        clock += 0.001
        packets = self.forth if forth else self.back
        source, destination = (self.client, self.server) if forth else (self.server, self.client)
        packet = Ether(src=FAR, dst=NEAR) if packets is entered else Ether(src=NEAR, dst=FAR)
        if self.tag:
            packet /= Dot1Q(vlan=self.tag)
        packet /= IPv6(src=source, dst=destination) if ":" in source else IP(src=source, dst=destination)
        ports = dict(sport=self.port, dport=443) if forth else dict(sport=443, dport=self.port)
        length = len(payload) + flags.count("S") + flags.count("F")
        seq, ack = (self.seq, self.ack) if forth else (self.ack, self.seq)
        frame = bytes(packet / TCP(flags=flags, seq=seq - (length if again else 0), ack=ack if "A" in flags else 0, **ports, **fields) / Raw(payload))
        packet = Ether(frame[:cut] if cut else frame.ljust(60, b"\0"))
        packet.time = clock
        packets.append(packet)
        if not again:
            if forth:
                self.seq += length
            else:
                self.ack += length
        return self

    def open(self):
        return self.send("S").send("SA", forth=False).send("A")

    def talk(self):
        return self.open().send("PA", b"GET").send("PA", b"200", forth=False).send("A")

    def close(self, forth=True):
        return self.send("FA", forth=forth).send("A", forth=not forth).send("FA", forth=not forth).send("A", forth=forth)


def to_here(port, **more):
    return Connection("198.51.100.7", "192.0.2.80", port, **more)


def from_here(port, **more):
    return Connection("2001:db8::7", "2001:db8:1::80", port, here=True, **more)


# Each side closes connections. Then a FIN is sent twice, packets arrive after the end, and both sides close at once.
for i in range(4):
    to_here(40000 + i).talk().close()
for i in range(3):
    from_here(40100 + i, tag=4).talk().close(forth=False)
to_here(40010).talk().send("FA").send("FA", again=True).send("FA", forth=False).send("A").send("A", forth=False)
to_here(40011, mirrored=True).talk().send("FA").send("FA", forth=False).send("A").send("A", forth=False)
# Connections are reset by the client, by the server, and after a FIN. A port is closed. A client resets before the handshake is
# complete.
for i in range(3):
    to_here(40020 + i).talk().send("RA")
to_here(40023).talk().send("RA", forth=False).send("PA", b"late").send("R", forth=False)
from_here(40024).talk().send("FA").send("RA", forth=False)
for i in range(2):
    to_here(40030 + i).send("S").send("RA", forth=False)
to_here(40032).send("S").send("SA", forth=False).send("R")
# SYNs get no answer, and one of them is sent again. Other clients get answers and do not acknowledge them.
to_here(40040).send("S").send("S", again=True)
to_here(40041).send("S")
for i in range(3):
    to_here(40042 + i).send("S").send("SA", forth=False)
# Connections that stay open. One of them began before the capture, and of another only one direction is visible.
for i in range(5):
    to_here(40050 + i).talk()
to_here(40055).send("PA", b"hello").send("A", forth=False)
to_here(40056).send("S").send("A").send("PA", b"hello")
# One connection is half closed, and one is closing.
to_here(40060).talk().send("FA").send("A", forth=False).send("PA", b"more", forth=False)
from_here(40061).talk().send("FA").send("FA", forth=False)
# A FIN and a reset for connections that the probe has not seen, and packets that the probe ignores: a packet that is cut off,
# one whose header is too short, a later fragment.
to_here(40070).send("FA")
to_here(40071).send("R")
to_here(40072).send("S", cut=50)
to_here(40073).send("S", dataofs=3)
fragment = Ether(src=FAR, dst=NEAR) / IP(src="198.51.100.7", dst="192.0.2.80", proto=6, frag=60) / Raw(bytes(40))
fragment.time = clock
entered.append(fragment)
# After a pause, unrelated packets make the probe look through its table.
clock += 70
for i in range(200):
    clock += 0.0001
    packet = Ether(src=FAR, dst="ff:ff:ff:ff:ff:ff") / ARP(psrc="198.51.100.9", pdst="192.0.2.1", hwsrc=FAR)
    packet.time = clock
    entered.append(packet)
# New connections, one of which uses an earlier port again.
to_here(40000).talk()
to_here(40080).send("S")
to_here(40081).send("S").send("SA", forth=False)
to_here(40082).talk().close()
for file, packets in [("capture.pcap", entered), ("egress.pcap", left)]:
    wrpcap(file, packets)
