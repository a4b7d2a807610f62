#!/usr/bin/python3
"""Makes capture.pcap, what comes in, and egress.pcap, what goes out: a host that asks resolvers, and that answers as a server."""
from scapy.all import *

FAR, NEAR = "02:00:00:00:00:01", "02:00:00:00:00:02"
entered, left = [], []
START = 1700000000


def send(packets, at, frame):
    packet = Ether(bytes(frame).ljust(60, b"\0"))
    packet.time = START + at
    packets.append(packet)


def frame(packets, source, destination, sport, dport, message, tag=None, **fields):
    packet = Ether(src=FAR, dst=NEAR) if packets is entered else Ether(src=NEAR, dst=FAR)
    if tag:
        packet /= Dot1Q(vlan=tag)
    ip = IPv6 if ":" in source else IP
    return packet / ip(src=source, dst=destination) / UDP(sport=sport, dport=dport, **fields) / Raw(bytes(message))


def ask(id, name, type="A", edns=None, **fields):
    return DNS(id=id, rd=1, qd=DNSQR(qname=name, qtype=type), ar=DNSRROPT(rclass=1232, **edns) if edns is not None else None, **fields)


def exchange(client, server, sport, at, after, id, name, type="A", rcode=0, answer="192.0.2.3", edns=None, here=True, tag=None, **fields):
    """A question and its answer; `here`: this host asks."""
    there, back = (left, entered) if here else (entered, left)
    send(there, at, frame(there, client, server, sport, 53, ask(id, name, type, edns), tag=tag))
    if after is None:
        return
    # scapy writes the name in the answer as a pointer to the name in the question, as all servers do.
    records = DNSRR(rrname=name, type=type, rdata=answer, ttl=60) if rcode == 0 and answer else None
    reply = DNS(id=id, qr=1, rd=1, ra=1, rcode=rcode, qd=DNSQR(qname=name, qtype=type), an=records, **fields)
    send(back, at + after, frame(back, server, client, 53, sport, dns_compress(reply) if records else reply, tag=tag))


HOST, HOST6, RESOLVER, RESOLVER6 = "198.51.100.7", "2001:db8::7", "192.0.2.53", "2001:db8:1::53"
# A host asks its resolver, which knows the answer (0.4 ms) or has to ask other servers (40 ms). One client mixes capital
# letters into names.
for i in range(12):
    exchange(HOST, RESOLVER, 40000 + i, i * 0.01, 0.0004, i, "www.example.org" if i % 2 else "WWW.eXample.ORG")
for i in range(5):
    exchange(HOST6, RESOLVER6, 41000 + i, 0.2 + i * 0.05, 0.040, i, f"host{i}.example.net", "AAAA", answer="2001:db8::1", edns={}, tag=4 if i % 2 else None)
exchange(HOST, RESOLVER, 42000, 0.5, 0.0004, 1, "example.org", "MX", answer=None)
exchange(HOST, RESOLVER, 42001, 0.51, 0.0004, 2, "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "PTR", answer="host.example.org")
exchange(HOST, RESOLVER, 42002, 0.52, 0.0004, 3, "", "NS", answer="a.example.org")
exchange(HOST, RESOLVER, 42003, 0.53, 0.0004, 4, "t" * 60 + "." + "u" * 60 + ".tunnel.example.com", "TXT", answer="x")
exchange(HOST, RESOLVER, 42004, 0.54, 0.0004, 5, "example.org", 65280, answer=None)
# Some names do not exist, a resolver fails, another one refuses, and an answer does not fit into its packet.
for i in range(4):
    exchange(HOST, RESOLVER, 43000 + i, 0.6 + i * 0.01, 0.001, i, "wpad.example.org", rcode=3)
exchange(HOST, RESOLVER, 43010, 0.7, 0.9, 1, "broken.example.org", rcode=2)
exchange(HOST, RESOLVER, 43011, 0.71, 0.001, 1, "example.edu", rcode=5)
exchange(HOST, RESOLVER, 43012, 0.72, 0.001, 1, "large.example.org", "TXT", answer=None, tc=1)
# The server does not know this version of EDNS: a part of code 16 is in the OPT record.
exchange(HOST, RESOLVER, 43013, 0.73, 0.001, 1, "example.org", edns={"version": 1}, answer=None, ar=DNSRROPT(extrcode=1))
# A question is sent again and gets no answer. Another question is sent again and gets two answers.
for i in range(3):
    exchange(HOST, "192.0.2.54", 44000, 1 + i, None, 9, "www.example.org")
exchange(HOST, RESOLVER, 44001, 1.5, None, 10, "www.example.org")
exchange(HOST, RESOLVER, 44001, 2.5, 0.010, 10, "www.example.org")
send(entered, 2.52, frame(entered, RESOLVER, HOST, 53, 44001, DNS(id=10, qr=1, qd=DNSQR(qname="www.example.org"))))
# A forged answer has another number than the question.
send(left, 3, frame(left, HOST, RESOLVER, 44002, 53, ask(11, "www.example.org")))
send(entered, 3.0001, frame(entered, RESOLVER, HOST, 53, 44002, DNS(id=12, qr=1, qd=DNSQR(qname="www.example.org"))))
send(entered, 3.0004, frame(entered, RESOLVER, HOST, 53, 44002, DNS(id=11, qr=1, qd=DNSQR(qname="www.example.org"))))
# This host also is a server, and answers at once. The probe does not count a notification by its name, because a notification
# is not a question.
for i in range(6):
    exchange("203.0.113.9", HOST, 45000 + i, 4 + i * 0.01, 0.00002, i, "zone.example.com", "SOA", answer=None, edns={}, here=False)
send(entered, 4.1, frame(entered, "203.0.113.9", HOST, 45010, 53, DNS(id=1, opcode=4, qd=DNSQR(qname="zone.example.com", qtype="SOA"))))
send(left, 4.1001, frame(left, HOST, "203.0.113.9", 53, 45010, DNS(id=1, opcode=4, qr=1, qd=DNSQR(qname="zone.example.com", qtype="SOA"))))
# Malformed messages: a header that is cut off, a name that refers to itself, a label that is too long, a name without an end,
# no type after the name, two questions, no question, a UDP length beyond the packet, a UDP length within the header, an answer
# to port 53.
question = bytes(ask(1, "www.example.org"))
for i, message in enumerate([question[:8], question[:12] + b"\xc0\x0c\0\1\0\1", question[:12] + b"\x7fx\0\0\1\0\1", question[:20], question[:-3],
                             question[:4] + b"\0\2" + question[6:], question[:4] + b"\0\0" + question[6:]]):
    send(entered, 5 + i * 0.01, frame(entered, "203.0.113.66", HOST, 46000 + i, 53, message))
send(entered, 5.1, frame(entered, "203.0.113.66", HOST, 46010, 53, question, len=500))
send(entered, 5.11, frame(entered, "203.0.113.66", HOST, 46011, 53, question, len=5))
send(entered, 5.12, frame(entered, "203.0.113.66", HOST, 46012, 53, DNS(id=1, qr=1, qd=DNSQR(qname="www.example.org"))))
# The first fragment of a long answer has the DNS header, so only this fragment counts. Packets that are not DNS: another port,
# TCP.
long = IP(src=RESOLVER, dst=HOST, id=7) / UDP(sport=53, dport=44003) / Raw(bytes(DNS(id=13, qr=1, qd=DNSQR(qname="large.example.org", qtype="TXT"), an=DNSRR(rrname="large.example.org", type="TXT", rdata=b"x" * 250))))
send(left, 6, frame(left, HOST, RESOLVER, 44003, 53, ask(13, "large.example.org", "TXT")))
for part in fragment(long, 160):
    send(entered, 6.0004, Ether(src=FAR, dst=NEAR) / part)
send(entered, 6.1, frame(entered, HOST, "203.0.113.66", 5353, 5353, question))
send(entered, 6.2, Ether(src=FAR, dst=NEAR) / IP(src="203.0.113.66", dst=HOST) / TCP(sport=1, dport=53) / Raw(question))
for file, packets in [("capture.pcap", entered), ("egress.pcap", left)]:
    wrpcap(file, sorted(packets, key=lambda packet: packet.time))
