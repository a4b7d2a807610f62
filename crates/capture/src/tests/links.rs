//! Packets of links other than Ethernet.

use super::*;

/// The beginnings of packets of IPv4 (from 192.0.2.1 to 198.51.100.2) and IPv6 (from 2001:db8::1 to
/// 2001:db8::2).
fn v4() -> Vec<u8> {
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 2]);
    packet
}

fn v6() -> Vec<u8> {
    let mut packet = vec![0; 48];
    packet[0] = 0x60;
    for (at, last) in [(8, 1), (24, 2)] {
        packet[at..at + 4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        packet[at + 15] = last;
    }
    packet
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const NO_MAC: [u8; 6] = [0; 6];

/// A frame of Ethernet.
fn ethernet(destination: [u8; 6], source: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [
        &destination[..],
        &source,
        &ether_type.to_be_bytes(),
        payload,
    ]
    .concat()
}

/// A pcap file of a kind of link, whose captured packets are each cut by 4 bytes.
fn file(link_type: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let words = Words::BOTH[0];
    let packet = |bytes: &Vec<u8>| words.packet([1, 0], bytes.len() as u32 + 4, bytes);
    [
        words.pcap(MICRO, link_type),
        packets.iter().flat_map(packet).collect(),
    ]
    .concat()
}

/// Checks that the packets of a file become frames, and others are skipped for these reasons.
#[track_caller]
fn assert_framed(
    (link_type, name): (u32, &str),
    packets: &[Vec<u8>],
    frames: &[(Option<Direction>, Vec<u8>)],
    skipped: &[(&str, u64)],
) {
    let (found, capture) = read(&file(link_type, packets), u64::MAX, &[]).unwrap();
    assert_eq!(found.len(), frames.len(), "{:?}", capture.skipped());
    for ((_, direction, length, bytes), (expected, frame)) in found.iter().zip(frames) {
        assert_eq!((direction, bytes), (expected, frame));
        assert_eq!(*length as usize, frame.len() + 4);
    }
    assert_eq!(counts(capture.framed()), [(name, frames.len() as u64)]);
    assert_eq!(counts(capture.skipped()), skipped);
}

#[test]
fn packets_of_ip_get_a_header() {
    let (v4, v6) = (v4(), v6());
    let frame_4 = (None, ethernet(NO_MAC, NO_MAC, 0x0800, &v4));
    let frame_6 = (None, ethernet(NO_MAC, NO_MAC, 0x86dd, &v6));
    let both = [frame_4.clone(), frame_6.clone()];
    let all = [v4.clone(), v6.clone(), vec![], vec![0x50; 40]];
    for link_type in [12, 14, 101] {
        assert_framed((link_type, "RAW"), &all, &both, &[("not_ip", 2)]);
    }
    assert_framed((228, "IPV4"), &all, &both[..1], &[("not_ip", 3)]);
    assert_framed((229, "IPV6"), &all, &both[1..], &[("not_ip", 3)]);
    for (link_type, name) in [(0, "NULL"), (108, "LOOP")] {
        let with = |family: u32, packet: &[u8]| {
            [family.to_le_bytes(), family.to_be_bytes()]
                .map(|family| [&family[..], packet].concat())
        };
        let packets = [
            with(2, &v4),
            with(10, &v6),
            with(30, &v6),
            with(28, &v6),
            with(7, &v4),
        ]
        .concat();
        let frames = [&frame_4, &frame_4]
            .into_iter()
            .chain([&frame_6; 6])
            .cloned()
            .collect::<Vec<_>>();
        assert_framed((link_type, name), &packets, &frames, &[("not_ip", 2)]);
        assert_framed(
            (link_type, name),
            &[with(2, &v4)[0].clone(), vec![2, 0, 0]],
            &both[..1],
            &[("header", 1)],
        );
    }
}

/// Makes the header of a cooked capture: of a kind (to us, to all, from us), an interface and a
/// protocol.
fn cooked(version: u8, kind: u16, interface: u16, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let (kind_bytes, interface, protocol) = (
        kind.to_be_bytes(),
        interface.to_be_bytes(),
        protocol.to_be_bytes(),
    );
    let address = [&MAC[..], &[0xaa, 0xbb]].concat();
    match version {
        1 => [
            &kind_bytes[..],
            &interface,
            &[0, 6],
            &address,
            &protocol,
            payload,
        ]
        .concat(),
        _ => [
            &protocol[..],
            &[0; 6],
            &interface,
            &[kind_bytes[1], 6],
            &address,
            payload,
        ]
        .concat(),
    }
}

#[test]
fn cooked_captures_tell_direction_and_sender() {
    let v4 = v4();
    let (ingress, egress) = (Some(Direction::Ingress), Some(Direction::Egress));
    for (version, link) in [(1, (113, "LINUX_SLL")), (2, (276, "LINUX_SLL2"))] {
        let cook = |kind, protocol| cooked(version, kind, 1, protocol, &v4);
        let packets = [
            cook(0, 0x0800),
            cook(1, 0x0806),
            cook(2, 0x0800),
            cook(3, 0x8100),
            cook(4, 0x0800),
            cook(9, 0x0800),
            // A frame of LLC, one of netlink, and one that ends in its header.
            cook(0, 4),
            cooked(version, 4, 824, 0x0800, &v4),
            cook(0, 0x0800)[..12].to_vec(),
        ];
        let to = |destination, ether_type| ethernet(destination, MAC, ether_type, &v4);
        let frames = [
            (ingress, to(NO_MAC, 0x0800)),
            (ingress, to([0xff; 6], 0x0806)),
            (ingress, to(NO_MAC, 0x0800)),
            (ingress, to(NO_MAC, 0x8100)),
            (egress, to(NO_MAC, 0x0800)),
            (None, to(NO_MAC, 0x0800)),
        ];
        assert_framed(link, &packets, &frames, &[("header", 1), ("not_ip", 2)]);
        // An interface without hardware addresses.
        let mut tunnel = cook(4, 0x0800);
        tunnel[if version == 1 { 5 } else { 11 }] = 0;
        let frame = (egress, ethernet(NO_MAC, NO_MAC, 0x0800, &v4));
        assert_framed(link, &[tunnel], &[frame], &[]);
    }
}

/// A data frame of 802.11 with these flags, whose addresses end in 1, 2, 3 and 4.
fn wireless(subtype: u8, flags: u8, more: &[u8], snap: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let address = |last| [2, 0, 0, 0, 1, last];
    let mut frame = vec![subtype << 4 | 2 << 2, flags, 0, 0];
    frame.extend([address(1), address(2), address(3)].concat());
    frame.extend([0x10, 0]);
    if flags & 3 == 3 {
        frame.extend(address(4));
    }
    [&frame[..], more, &snap, &[0x08, 0], payload].concat()
}

const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];

#[test]
fn data_frames_of_802_11_that_carry_ip_are_read() {
    let v4 = v4();
    let address = |last| [2, 0, 0, 0, 1, last];
    let mut fragment = wireless(0, 0, &[], SNAP, &v4);
    fragment[22] |= 1;
    let packets = [
        wireless(0, 0, &[], SNAP, &v4),
        wireless(0, 1, &[], SNAP, &v4),
        wireless(8, 2, &[0, 0], SNAP, &v4),
        wireless(8, 0x83, &[0; 6], [0xaa, 0xaa, 3, 0, 0, 0xf8], &v4),
        // A beacon, a frame without data, encrypted data, several frames in one, a later fragment,
        // another protocol, and a frame that ends too early.
        [&[0x80, 0][..], &[0; 60]].concat(),
        wireless(4, 0, &[], SNAP, &v4),
        wireless(0, 0x40, &[], SNAP, &v4),
        wireless(8, 0, &[0x80, 0], SNAP, &v4),
        fragment,
        wireless(0, 0, &[], [0x42, 0x42, 3, 0, 0, 0], &v4),
        wireless(0, 0, &[], SNAP, &[])[..30].to_vec(),
    ];
    let frame = |to, from| (None, ethernet(address(to), address(from), 0x0800, &v4));
    let frames = [frame(1, 2), frame(3, 2), frame(1, 3), frame(3, 4)];
    let skipped = [
        ("aggregated", 1),
        ("encrypted", 1),
        ("fragment", 1),
        ("header", 1),
        ("not_ip", 3),
    ];
    assert_framed((105, "IEEE802_11"), &packets, &frames, &skipped);
    // Without fields, with flags (none, padded), with time and flags, with two lists of fields.
    let radiotap = |present: &[u32], fields: &[u8], frame: &[u8]| {
        let present: Vec<u8> = present.iter().flat_map(|word| word.to_le_bytes()).collect();
        let size = (4 + present.len() + fields.len()) as u16;
        [&[0, 0][..], &size.to_le_bytes(), &present, fields, frame].concat()
    };
    let plain = wireless(8, 0, &[0, 0], SNAP, &v4);
    let padded = wireless(8, 0, &[0, 0, 0xee, 0xee], SNAP, &v4);
    let packets = [
        radiotap(&[0], &[], &plain),
        radiotap(&[4], &[0x20], &plain),
        radiotap(&[2], &[0x20, 1, 2], &padded),
        radiotap(&[3], &[9, 9, 9, 9, 9, 9, 9, 9, 0x20], &padded),
        radiotap(
            &[0x8000_0003, 5],
            &[[9; 12], [0; 12]].concat()[..13],
            &plain,
        ),
        radiotap(&[2], &[], &plain)[..8].to_vec(),
        vec![0, 0, 200, 0],
    ];
    let frame = frame(1, 2);
    let frames = [
        frame.clone(),
        frame.clone(),
        frame.clone(),
        frame.clone(),
        frame,
    ];
    assert_framed(
        (127, "IEEE802_11_RADIOTAP"),
        &packets,
        &frames,
        &[("header", 2)],
    );
}

/// The check sequence of a frame does not belong to the packet.
#[test]
fn check_sequences_of_802_11_are_left_out() {
    let v4 = v4();
    let checked = [
        &[0, 0, 9, 0, 2, 0, 0, 0, 0x10][..],
        &wireless(0, 0, &[], SNAP, &v4),
        &[0xcc; 4],
    ]
    .concat();
    let words = Words::BOTH[0];
    let whole = words.packet([1, 0], checked.len() as u32, &checked);
    let cut = words.packet([1, 0], checked.len() as u32, &checked[..checked.len() - 2]);
    let short = words.packet([1, 0], checked.len() as u32, &checked[..checked.len() - 8]);
    let file = [words.pcap(MICRO, 127), whole, cut, short].concat();
    let found = packets(&file).unwrap().0;
    let lengths: Vec<_> = found
        .iter()
        .map(|packet| (packet.2 as usize, packet.3.len()))
        .collect();
    let full = 14 + v4.len();
    assert_eq!(lengths, [(full, full), (full, full), (full, full - 4)]);
}

#[test]
fn addresses_of_the_host_give_packets_a_direction() {
    let (ingress, egress) = (Some(Direction::Ingress), Some(Direction::Egress));
    let arp = [
        &[0, 1, 8, 0, 6, 4, 0, 1][..],
        &[0; 6],
        &[192, 0, 2, 1],
        &[0; 6],
        &[192, 0, 2, 9],
    ]
    .concat();
    let tagged = [&[0, 5, 0x08, 0][..], &v4()].concat();
    let frames = [
        ethernet([0xff; 6], MAC, 0x0800, &v4()),
        ethernet(MAC, NO_MAC, 0x8100, &tagged),
        ethernet(NO_MAC, NO_MAC, 0x86dd, &v6()),
        ethernet(NO_MAC, NO_MAC, 0x0806, &arp),
        ethernet(NO_MAC, NO_MAC, 0x0800, &v4()[..14]),
        vec![0; 10],
    ];
    let directions = |local: &[&str]| {
        let (found, _) = read(&file(1, &frames), u64::MAX, local).unwrap();
        found.into_iter().map(|packet| packet.1).collect::<Vec<_>>()
    };
    assert_eq!(directions(&[]), [None; 6]);
    assert_eq!(
        directions(&["192.0.2.1"]),
        [egress, egress, None, egress, None, None]
    );
    assert_eq!(
        directions(&["198.51.100.2", "192.0.2.9"]),
        [ingress, ingress, None, ingress, None, None]
    );
    assert_eq!(
        directions(&["2001:db8::2"]),
        [None, None, ingress, None, None, None]
    );
    assert_eq!(
        directions(&["02:00:00:00:00:07"]),
        [egress, ingress, None, None, None, None]
    );
    for (text, is_address) in [
        ("02:00:00:00:00", false),
        ("eth0", false),
        ("", false),
        ("192.0.2.1/24", false),
        ("2:0:0:0:0:0", false),
    ] {
        assert_eq!(text.parse::<LocalAddress>().is_ok(), is_address, "{text}");
    }
    for text in ["192.0.2.1", "2001:db8::1", "02:00:00:00:00:0a"] {
        assert_eq!(text.parse::<LocalAddress>().unwrap().to_string(), text);
    }
}

/// The file's own marks count more than addresses.
#[test]
fn directions_of_the_file_come_first() {
    let packets = [
        cooked(1, 0, 1, 0x0800, &v4()),
        cooked(1, 9, 1, 0x0800, &v4()),
    ];
    let (found, _) = read(&file(113, &packets), u64::MAX, &["192.0.2.1"]).unwrap();
    let directions: Vec<_> = found.into_iter().map(|packet| packet.1).collect();
    assert_eq!(
        directions,
        [Some(Direction::Ingress), Some(Direction::Egress)]
    );
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// The beginnings of all formats.
    const BEGINNINGS: [&[u8]; 6] = [
        b"",
        b"snoop\0\0\0\0\0\0\x02\0\0\0\x04",
        b"\x0a\x0d\x0d\x0a",
        b"\x1f\x8b\x08\0",
        b"\x28\xb5\x2f\xfd",
        b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0",
    ];

    proptest! {
        /// Any content of a packet of any kind of link is read or counted.
        #[test]
        fn each_packet_is_read_or_counted(
            link_type in prop_oneof![Just(0), Just(101), Just(105), Just(113), Just(127), Just(228), Just(276), 0..300_u32],
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..9),
        ) {
            let (found, capture) = read(&file(link_type, &packets), u64::MAX, &["192.0.2.1"]).unwrap();
            let skipped: u64 = capture.skipped().values().sum();
            prop_assert_eq!(found.len() as u64 + skipped, packets.len() as u64);
            for (_, _, length, bytes) in found {
                prop_assert!(bytes.len() <= length as usize);
            }
        }

        /// The reader does not panic at any bytes after the beginning of any format.
        #[test]
        fn no_bytes_make_the_reader_panic(
            begin in prop::sample::select(BEGINNINGS.to_vec()),
            rest in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let _ = read(&[begin, &rest].concat(), 1 << 20, &[]);
        }
    }
}
