#!/usr/bin/python3
"""Makes capture.pcap: clients of a DHCP server, a rogue one, somebody who empties the pool, refusals, relays, DHCPv6, and
messages that are cut off or contradict themselves."""
from scapy.all import *

SERVER, ROGUE, BAD = "02:00:00:00:00:67", "02:00:00:00:0b:ad", "02:00:00:00:66:66"
ALL = "ff:ff:ff:ff:ff:ff"
packets = []


def mac(i):
    return f"02:00:00:01:{i >> 8:02x}:{i & 255:02x}"


def asks(kind, client, options=(), source=None, tag=None, relay="0.0.0.0", to="255.255.255.255", **fields):
    eth = Ether(src=source or client, dst=ALL)
    ip = IP(src="0.0.0.0" if relay == "0.0.0.0" else relay, dst=to)
    bootp = BOOTP(op=1, chaddr=mac2str(client), xid=len(packets), giaddr=relay, flags=0x8000, **fields)
    udp = UDP(sport=68 if relay == "0.0.0.0" else 67, dport=67)
    packet = ip / udp / bootp / DHCP(options=[("message-type", kind), *options, ("param_req_list", [1, 3, 6, 15]), "end"])
    packets.append((eth / tag if tag else eth) / packet)


def answers(kind, client, server="192.0.2.1", source=SERVER, options=(), tag=None, named=True, to="255.255.255.255", port=68):
    eth = Ether(src=source, dst=ALL)
    bootp = BOOTP(op=2, chaddr=mac2str(client), xid=len(packets), yiaddr="192.0.2.100", siaddr=server)
    own = [("server_id", server)] if named else []
    # The message type need not be the first option.
    list_ = [("subnet_mask", "255.255.255.0"), ("message-type", kind), *own, ("lease_time", 3600), *options, "end"]
    packets.append((eth / tag if tag else eth) / IP(src=server, dst=to) / UDP(sport=67, dport=port) / bootp / DHCP(options=list_))


# Clients get an address. Two servers answer one of the clients.
for i in range(5):
    asks("discover", mac(i))
    answers("offer", mac(i))
    if i == 2:
        answers("offer", mac(i), server="192.0.2.66", source=ROGUE)
    asks("request", mac(i), [("server_id", "192.0.2.1")])
    answers("ack", mac(i))
# The rogue server answers first, and does not name itself.
asks("request", mac(6))
answers("ack", mac(6), server="192.0.2.66", source=ROGUE, named=False)
# A request is refused, an address is in use already, an address is given back, and a client asks only for options.
asks("request", mac(7), [("requested_addr", "198.51.100.7")])
answers("nak", mac(7))
asks("decline", mac(8), [("requested_addr", "192.0.2.8")])
asks("decline", mac(9), [("requested_addr", "192.0.2.9")])
asks("release", mac(1))
asks("inform", mac(2))
# An attacker uses up all addresses: one network card sends each request with another MAC.
for i in range(80):
    asks("discover", mac(1000 + i), source=BAD)
# Each VLAN is a network of its own. A relay forwards messages of other networks.
for i in range(3):
    asks("discover", mac(300 + i), tag=Dot1Q(vlan=7))
    answers("offer", mac(300 + i), server="198.51.100.1", tag=Dot1Q(vlan=7))
asks("discover", mac(400), source="02:00:00:00:00:fe", relay="198.51.100.254", to="192.0.2.1", hops=1)
answers("offer", mac(400), to="198.51.100.254", port=67)
# Options: padding before the type, more options than the probe examines, no options, a type with a wrong length, an unknown
# type, an option that goes beyond the message. Then a message without the magic number of DHCP, and a hardware type other than
# Ethernet.
asks("discover", mac(500))
head = bytes(BOOTP(op=1, chaddr=mac2str(mac(501))))[:236]
udp = Ether(src=mac(501), dst=ALL) / IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67)
cookie = b"\x63\x82\x53\x63"
for options in (b"\0\0\0\x35\x01\x01\xff", b"\x0c\x01a" * 20 + b"\x35\x01\x01\xff", b"\xff", b"\x35\x02\x01\x01\xff", b"\x35\x01\x20\xff", b"\x37\x30\x01", b"\x35"):
    packets.append(udp / Raw(head + cookie + options))
packets.append(udp / Raw(head + b"\x01\x02\x03\x04" + b"\x35\x01\x01\xff"))
packets.append(udp / Raw(bytes(BOOTP(op=1, htype=32, hlen=0))[:236] + cookie + b"\x35\x01\x01\xff"))
packets.append(udp / Raw(head[:200]))
# Packets that the capture has cut off: within the options, within the DHCP header, after the UDP header.
whole = bytes(udp / Raw(head + cookie + b"\x35\x01\x01\x37\x04\x01\x03\x06\x0f\xff"))
packets += [Ether(whole[:288]), Ether(whole[:120]), Ether(whole[:42])]
# DHCPv6: a client and a server, another server, an unknown type, an empty message.
client6 = Ether(src=mac(600), dst="33:33:00:01:00:02") / IPv6(src="fe80::1", dst="ff02::1:2") / UDP(sport=546, dport=547)
for kind in (1, 3, 5, 11):
    packets.append(client6 / Raw(bytes([kind, 0, 0, 1]) + b"\x00\x01\x00\x0a\x00\x03\x00\x01\x02\x00\x00\x01\x02\x58"))
for kind, source, address in ((2, SERVER, "fe80::67"), (7, SERVER, "fe80::67"), (2, ROGUE, "fe80::bad")):
    packets.append(Ether(src=source, dst=mac(600)) / IPv6(src=address, dst="fe80::1") / UDP(sport=547, dport=546) / Raw(bytes([kind, 0, 0, 1]) + bytes(14)))
packets += [client6 / Raw(bytes([200, 0, 0, 1])), client6, Ether(src=mac(600)) / Dot1Q(vlan=7) / client6[IPv6] / Raw(bytes([1, 0, 0, 2]))]
# Packets that are not DHCP: other ports, IPv6 on the ports of DHCP, a later fragment.
packets.append(Ether(src=mac(1)) / IP(src="192.0.2.9", dst="192.0.2.1") / UDP(sport=5000, dport=67) / Raw(head + cookie + b"\x35\x01\x01\xff"))
packets.append(Ether(src=mac(1)) / IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=68, dport=67) / Raw(head))
packets.append(Ether(src=mac(1)) / IP(src="192.0.2.9", dst="192.0.2.1", frag=50, proto=17) / Raw(head))
packets = [Ether(bytes(packet)) for packet in packets]
for i, packet in enumerate(packets):
    packet.time = 1700000000 + i * 0.01
wrpcap("capture.pcap", packets)
