#!/usr/bin/python3
"""Makes capture.pcap: handshakes of several versions of QUIC, version negotiation, small Initial packets, connection IDs
of all lengths, headers that are cut off, and other protocols on the port."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
packets = []
V1, V2, DRAFT29, GREASE, Q050 = 1, 0x6B3343CF, 0xFF00001D, 0x3A4A5A6A, 0x51303530


def quic(payload, client="198.51.100.1", sport=50000, down=False, port=443, ip6=False, tag=None):
    ip, server = (IPv6, "2001:db8::443") if ip6 else (IP, "192.0.2.44")
    if down:
        packet = ip(src=server, dst=client) / UDP(sport=port, dport=sport)
    else:
        packet = ip(src=client, dst=server) / UDP(sport=sport, dport=port)
    packets.append((eth / tag if tag else eth) / packet / Raw(payload))


def long(version, kind, dcid=8, scid=8, size=1200, first=0xC0):
    """A long header of this type (as version 1 numbers them), and protected bytes."""
    if version == V2:
        kind = (kind + 1) & 3
    head = bytes([first | kind << 4]) + struct.pack(">I", version) + bytes([dcid]) + bytes(range(1, dcid + 1))
    head += bytes([scid]) + bytes(range(101, 101 + scid))
    if kind == 0 and version != V2 or kind == 1 and version == V2:
        head += b"\x00"
    rest = size - len(head) - 2
    return head + struct.pack(">H", 0x4000 | max(rest, 0)) + bytes(max(rest, 0))


def short(size=60):
    return bytes([0x45]) + bytes(range(8)) + bytes(size)


# Handshakes: an Initial packet from the client and from the server, Handshake, 0-RTT, then packets with short headers.
for i, version in enumerate([V1, V1, V1, V2, DRAFT29]):
    where = dict(client=f"198.51.100.{i}", sport=50000 + i)
    quic(long(version, 0, scid=0), **where)
    if i == 1:
        quic(long(version, 1, scid=0, size=800), **where)
    quic(long(version, 0, dcid=0, scid=20), down=True, **where)
    quic(long(version, 2, dcid=0, scid=20, size=900), down=True, **where)
    quic(long(version, 2, dcid=20, scid=0, size=80), **where)
    for _ in range(4):
        quic(short(), down=True, **where)
        quic(short(20), **where)
# Connections over IPv6 and with VLAN tags, and a Retry packet.
quic(long(V1, 0), client="2001:db8::1", ip6=True)
quic(long(V1, 0), client="2001:db8::1", ip6=True, tag=Dot1Q(vlan=7))
quic(long(V1, 3, dcid=0, scid=8, size=120), down=True)
quic(long(V2, 3, dcid=0, scid=8, size=120), down=True, tag=Dot1AD(vlan=7) / Dot1Q(vlan=8))
# A client invents a version, and the server answers with its list of versions. Another connection uses an older version, whose
# packet types have other numbers.
for i in range(3):
    quic(long(GREASE, 0), sport=51000 + i)
    quic(b"\x8a" + bytes(4) + b"\x08" + bytes(range(8)) + b"\x08" + bytes(range(8)) + struct.pack(">IIII", 0x7A8A9AAA, V2, V1, DRAFT29), down=True, sport=51000 + i)
quic(long(Q050, 0, size=1300), sport=51010)
quic(long(0xABCD0001, 0, size=1250, dcid=30), sport=51011)
# A list with more versions than the probe examines, a list that ends within a version, and an empty list.
quic(b"\xc0" + bytes(4) + b"\x00\x00" + struct.pack(">I", V1) * 20, down=True, sport=51000)
quic(b"\xc0" + bytes(4) + b"\x00\x00" + struct.pack(">I", V1)[:3], down=True, sport=51001)
quic(b"\xc0" + bytes(4) + b"\x04abcd\x00", down=True, sport=51002)
# Small Initial packets, as forgers and scanners send them.
for i in range(6):
    quic(long(V1, 0, size=200), client=f"203.0.113.{i}", sport=443)
# Connection IDs that are longer than version 1 allows, and longer than the packet. A header that is cut off.
quic(long(V1, 0, dcid=21))
quic(long(V1, 0, scid=100))
quic(b"\xc0" + struct.pack(">I", V1) + b"\x14" + bytes(10))
quic(b"\xc0" + struct.pack(">I", V1) + b"\x08" + bytes(8) + b"\x14" + bytes(3))
quic(b"\xc0\x00\x00")
whole = bytes(eth / IP(src="198.51.100.9", dst="192.0.2.44") / UDP(sport=52000, dport=443) / Raw(long(V1, 0)))
packets += [Ether(whole[:50]), Ether(whole[:42]), Ether(whole[:38])]
# A padded frame: the IP header states a smaller length than the frame has.
packets.append(Ether(bytes(eth / IP(src="198.51.100.9", dst="192.0.2.44") / UDP(sport=52000, dport=443) / Raw(b"\xc0\x00\x00\x00\x01")).ljust(80, b"\x08")))
# Packets that are not QUIC: bits that no version has, no payload, other ports, TCP, a later fragment.
quic(b"\x00\x01" + bytes(40))
quic(b"\x80\x60\x12\x34" + bytes(160))
quic(b"")
quic(long(V1, 0), port=4433)
packets.append(eth / IP(src="198.51.100.9", dst="192.0.2.44") / TCP(sport=52000, dport=443, flags="PA") / Raw(long(V1, 0)))
packets.append(eth / IP(src="198.51.100.9", dst="192.0.2.44", frag=100, proto=17) / Raw(long(V1, 0)))
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
