#!/usr/bin/python3
"""Makes capture.pcap: TLS connections with names and without, ClientHellos that are split, malformed or cut off, and
connections of other protocols."""
from scapy.all import *

eth = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
back_eth = Ether(src=eth.dst, dst=eth.src)
packets = []
NEW = [0x3a3a, 0x0304, 0x0303]


def extension(kind, data):
    return struct.pack(">HH", kind, len(data)) + data


def server_name(name, kind=0):
    name = name.encode() if isinstance(name, str) else name
    return extension(0, struct.pack(">HBH", len(name) + 3, kind, len(name)) + name)


def hello(name=None, versions=NEW, legacy=0x0303, before=b"", session=32, ciphers=17, extensions=None):
    """A ClientHello. `before` are extensions that stand before the name."""
    if extensions is None:
        extensions = extension(0x2A2A, b"") + before + (server_name(name) if name else b"")
        extensions += extension(10, b"\x00\x04\x00\x1d\x00\x17") + extension(16, b"\x00\x03\x02h2")
        if versions:
            extensions += extension(43, bytes([2 * len(versions)]) + b"".join(struct.pack(">H", v) for v in versions))
    body = struct.pack(">H", legacy) + bytes(range(32)) + bytes([session]) + bytes(session)
    body += struct.pack(">H", 2 * ciphers) + b"\x13\x01" * ciphers + b"\x01\x00"
    body += struct.pack(">H", len(extensions)) + extensions if extensions != b"" else b""
    shake = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack(">H", len(shake)) + shake


SERVER_HELLO = b"\x16\x03\x03\x00\x2c\x02\x00\x00\x28\x03\x03" + bytes(38)
DATA = b"\x17\x03\x03\x00\x80" + bytes(128)


def connection(client, first, port=443, data=2, ip6=False, tag=None):
    """The packets of a connection from the ClientHello on, in both directions."""
    ip, to = (IPv6, "2001:db8::443") if ip6 else (IP, "192.0.2.44")
    there, here = eth / ip(src=client, dst=to), back_eth / ip(src=to, dst=client)
    if tag:
        there, here = eth / tag / ip(src=client, dst=to), back_eth / tag / ip(src=to, dst=client)
    sport = 40000 + len(packets)
    sequence = 1
    for part in first if isinstance(first, list) else [first]:
        packets.append(there / TCP(sport=sport, dport=port, flags="PA", seq=sequence, ack=1) / Raw(part))
        sequence += len(part)
    packets.append(here / TCP(sport=port, dport=sport, flags="PA", seq=1, ack=sequence) / Raw(SERVER_HELLO))
    for i in range(data):
        packets.append(there / TCP(sport=sport, dport=port, flags="A", seq=sequence, ack=50))
        packets.append(here / TCP(sport=port, dport=sport, flags="PA", seq=50 + 133 * i, ack=sequence) / Raw(DATA))
    return sport


# Names on any port, over IPv4 and IPv6, and with VLAN tags. Upper and lower case give the same name.
for i in range(4):
    connection(f"198.51.100.{i}", hello("www.example.com"), data=4)
connection("198.51.100.9", hello("WWW.Example.COM"))
connection("198.51.100.10", hello("mail.example.org", versions=None), port=993)
connection("2001:db8::1", hello("www.example.com"), ip6=True)
connection("2001:db8::2", hello("six.example.net"), ip6=True, tag=Dot1Q(vlan=7))
connection("198.51.100.11", hello("tagged.example.net"), tag=Dot1AD(vlan=7) / Dot1Q(vlan=8))
connection("198.51.100.12", hello("a" * 63 + "." + "b" * 30 + ".example"))
connection("198.51.100.13", hello("xn--bcher-kva.example"), port=8443)
connection("198.51.100.14", hello(b"odd\x01name\xff\"<>"))
# Versions of TLS: old clients state one version only. Some clients state drafts and unknown versions.
connection("198.51.100.20", hello("old.example", versions=None, legacy=0x0300), data=0)
connection("198.51.100.21", hello("old.example", versions=None, legacy=0x0301), data=0)
connection("198.51.100.22", hello("old.example", versions=None, legacy=0x0302), data=0)
connection("198.51.100.23", hello("draft.example", versions=[0x7F1C, 0x0304]), data=0)
# ClientHellos without a name: one has other extensions, one has no extensions.
connection("198.51.100.30", hello())
connection("198.51.100.31", hello(versions=None, extensions=b""))
# ClientHellos in two packets. Large keys before the name move it into the second packet; other packets end after the name,
# within the name, or before all extensions.
large = extension(51, bytes(1300))
for name, cut in (("late.example", 1400), ("early.example", 200), ("within.example", 140), ("within.example", 20)):
    whole = hello(name, before=large if cut == 1400 else b"")
    connection("198.51.100.40", [whole[:cut], whole[cut:]])
# A ClientHello that states a greater length than it has, and a frame that is longer than its packet.
packets.append(Ether(bytes(eth / IP(src="198.51.100.41", dst="192.0.2.44") / TCP(sport=41000, dport=443, flags="PA") / Raw(hello("pad.example")[:60])) + b"\xee" * 60))
# Malformed messages: extensions longer than the ClientHello, an extension longer than all extensions, a name longer than its
# list, and a name of another type.
broken = bytearray(hello("long.example"))
at = 5 + 4 + 2 + 32 + 1 + 32 + 2 + 34 + 2
broken[at : at + 2] = b"\x7f\xff"
connection("198.51.100.50", bytes(broken), data=0)
connection("198.51.100.51", hello(extensions=extension(0x2A2A, b"") + struct.pack(">HH", 5, 600) + bytes(8)), data=0)
connection("198.51.100.52", hello(extensions=extension(0, struct.pack(">HBH", 8, 0, 600) + b"short")), data=0)
connection("198.51.100.53", hello(extensions=server_name("kind.example", 7)), data=0)
connection("198.51.100.54", hello(session=255)[:43] + b"\xff" + bytes(300), data=0)
# Fast Open: the ClientHello comes with the SYN. Then a client whose server asks for a second ClientHello.
packets.append(eth / IP(src="198.51.100.60", dst="192.0.2.44") / TCP(sport=42000, dport=443, flags="S") / Raw(hello("fast.example")))
for seq in 1, 1 + len(hello("again.example")):
    packets.append(eth / IP(src="198.51.100.61", dst="192.0.2.44") / TCP(sport=42001, dport=443, flags="PA", seq=seq, ack=1) / Raw(hello("again.example")))
# Another connection from the same port: its packets have no name.
sport = connection("198.51.100.62", hello("before.example"), data=1)
there = IP(src="198.51.100.62", dst="192.0.2.44")
packets += [eth / there / TCP(sport=sport, dport=443, flags="S"), eth / there / TCP(sport=sport, dport=443, flags="A") / Raw(b"not TLS")]
# Packets that the capture has cut off: within the ClientHello, after the TCP header, and within the TCP header.
whole = bytes(eth / there / TCP(sport=43000, dport=443, flags="PA", seq=1, ack=1) / Raw(hello("cut.example")))
packets += [Ether(whole[:150]), Ether(whole[:58]), Ether(whole[:54]), Ether(whole[:44])]
# Packets that are not TLS over TCP: HTTP, another type of record, SSL 2, UDP, a later fragment.
packets.append(eth / there / TCP(sport=43001, dport=80, flags="PA") / Raw(b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n"))
packets.append(eth / there / TCP(sport=43002, dport=443, flags="PA") / Raw(DATA))
packets.append(eth / there / TCP(sport=43003, dport=443, flags="PA") / Raw(b"\x80\x2e\x01\x00\x02" + bytes(43)))
packets.append(eth / there / UDP(sport=43004, dport=443) / Raw(hello("udp.example")))
packets.append(eth / IP(src="198.51.100.62", dst="192.0.2.44", frag=10, proto=6) / Raw(hello("fragment.example")))
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.001
wrpcap("capture.pcap", packets)
