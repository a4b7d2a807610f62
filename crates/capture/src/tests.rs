//! Captures that follow the descriptions of both formats, byte by byte.

mod links;
mod packed;
mod pcapng;
mod snoop;

use std::io::Cursor;

use twinprobe_ebpf_common::{Direction, PacketCounts};

use crate::{Capture, CaptureError, LocalAddress};

/// The fields that are read of a packet: time, direction, length, bytes.
type Read = (u64, Option<Direction>, u32, Vec<u8>);

const SECOND: u64 = 1_000_000_000;
const ETHERNET: u32 = 1;

/// Returns the packets of a file, and whether it is cut off.
fn packets(file: &[u8]) -> Result<(Vec<Read>, bool), CaptureError> {
    read(file, u64::MAX, &[]).map(|(found, capture)| (found, capture.is_cut_off()))
}

/// Reads a file to its end.
fn read(file: &[u8], limit: u64, local: &[&str]) -> Result<(Vec<Read>, Capture), CaptureError> {
    let local = local
        .iter()
        .map(|address| address.parse().expect("an address"))
        .collect();
    let mut capture = Capture::open(Cursor::new(file.to_vec()), limit, local)?;
    let mut found = Vec::new();
    while capture.advance()? {
        let packet = capture.packet().expect("there is one");
        found.push((
            packet.time_ns,
            packet.direction,
            packet.length,
            packet.bytes.to_vec(),
        ));
    }
    assert!(capture.packet().is_none());
    Ok((found, capture))
}

/// The counts of packets by name.
fn counts(counts: &PacketCounts) -> Vec<(&str, u64)> {
    counts
        .iter()
        .map(|(name, count)| (&**name, *count))
        .collect()
}

fn message(file: &[u8]) -> String {
    packets(file).expect_err("it is refused").to_string()
}

/// The words of a file in one byte order.
#[derive(Clone, Copy)]
struct Words {
    big_endian: bool,
}

impl Words {
    const BOTH: [Self; 2] = [Self { big_endian: false }, Self { big_endian: true }];

    fn short(self, word: u16) -> [u8; 2] {
        if self.big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        }
    }

    fn word(self, word: u32) -> [u8; 4] {
        if self.big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        }
    }

    fn all(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.word(*word)).collect()
    }

    /// The head of a pcap file.
    fn pcap(self, magic: u32, link_type: u32) -> Vec<u8> {
        let version = [self.short(2), self.short(4)].concat();
        [
            &self.word(magic)[..],
            &version,
            &self.all(&[0, 0, 65535, link_type]),
        ]
        .concat()
    }

    /// A packet of a pcap file.
    fn packet(self, time: [u32; 2], length: u32, bytes: &[u8]) -> Vec<u8> {
        [
            &self.all(&[time[0], time[1], bytes.len() as u32, length]),
            bytes,
        ]
        .concat()
    }
}

const MICRO: u32 = 0xa1b2_c3d4;
const NANO: u32 = 0xa1b2_3c4d;

#[test]
fn pcap_has_micro_or_nanoseconds_in_either_byte_order() {
    for words in Words::BOTH {
        for (magic, part) in [(MICRO, 1000), (NANO, 1)] {
            let file = [
                words.pcap(magic, ETHERNET),
                words.packet([1_700_000_000, 999_999], 60, &[1; 60]),
                // A stamp beyond 2038, an old one, and a packet that was cut off by the capture.
                words.packet([u32::MAX, 0], 0, &[]),
                words.packet([0, 1], 1514, &[2; 96]),
            ]
            .concat();
            let expected = vec![
                (
                    1_700_000_000 * SECOND + 999_999 * part,
                    None,
                    60,
                    vec![1; 60],
                ),
                (u64::from(u32::MAX) * SECOND, None, 0, vec![]),
                (part, None, 1514, vec![2; 96]),
            ];
            assert_eq!(packets(&file).unwrap(), (expected, false));
        }
    }
}

#[test]
fn lengths_are_reported_as_they_are() {
    let words = Words::BOTH[0];
    let file = [
        words.pcap(MICRO, ETHERNET),
        words.packet([1, 0], 20, &[1; 60]),
        words.packet([1, 0], 1, &[9]),
        words.packet([1, 0], 262_144, &[3; 262_144]),
        words.packet([1, 2_000_000], 4, &[3; 4]),
    ]
    .concat();
    let (found, is_cut_off) = packets(&file).unwrap();
    assert!(!is_cut_off);
    let lengths: Vec<_> = found
        .iter()
        .map(|(_, _, length, bytes)| (*length, bytes.len()))
        .collect();
    assert_eq!(lengths, [(20, 60), (1, 1), (262_144, 262_144), (4, 4)]);
    // Two million microseconds are two seconds.
    assert_eq!(found[3].0, 3 * SECOND);
}

#[test]
fn a_file_that_ends_anywhere_has_the_packets_before() {
    let words = Words::BOTH[0];
    let head = words.pcap(NANO, ETHERNET);
    let (one, two) = (
        words.packet([1, 1], 60, &[1; 60]),
        words.packet([2, 2], 14, &[2; 14]),
    );
    let file = [&head[..], &one, &two].concat();
    for end in 0..=file.len() {
        let read = packets(&file[..end]);
        if end < head.len() {
            assert!(read.is_err(), "{end}");
            continue;
        }
        let whole = [head.len(), head.len() + one.len(), file.len()];
        let (found, is_cut_off) = read.unwrap();
        assert_eq!(
            found.len(),
            whole[1..].iter().filter(|at| **at <= end).count(),
            "{end}"
        );
        assert_eq!(is_cut_off, !whole.contains(&end), "{end}");
    }
}

#[test]
fn what_is_no_capture_is_refused() {
    let words = Words::BOTH[0];
    assert!(message(b"").contains("empty"));
    for text in [
        &b"hello"[..],
        &[0; 100],
        b"\x0a\x0d\x0d\x0a",
        b"snoop\0\0\0",
    ] {
        assert!(
            message(text).contains("neither pcap nor pcapng nor snoop"),
            "{text:?}"
        );
    }
    // The upper bits describe the frame check sequence.
    assert_eq!(
        packets(&words.pcap(MICRO, 0x1400_0001)).unwrap(),
        (vec![], false)
    );
    let packet = words.packet([1, 1], 14, &[0; 14]);
    for captured in [262_145_u32, 300_000, 1 << 20, u32::MAX] {
        let long = words.all(&[1, 1, captured, captured]);
        let rest = vec![7; captured.min(2 << 20) as usize];
        let text = message(&[words.pcap(MICRO, ETHERNET), packet.clone(), long, rest].concat());
        assert!(
            text.starts_with("after 1 packets: the next one claims") && text.contains("262144"),
            "{text}"
        );
    }
}

#[test]
fn many_packets_are_read_piece_by_piece() {
    let words = Words::BOTH[0];
    let mut file = words.pcap(MICRO, ETHERNET);
    for number in 0..6_000 {
        let bytes = vec![number as u8; 1 + number as usize % 1500];
        file.extend(words.packet([number, 0], bytes.len() as u32, &bytes));
    }
    assert!(file.len() > 4 << 20);
    let mut capture = Capture::open(Cursor::new(file), u64::MAX, vec![]).unwrap();
    for number in 0..6_000_u64 {
        assert!(capture.advance().unwrap());
        let packet = capture.packet().unwrap();
        assert_eq!(
            (packet.time_ns, packet.bytes.len()),
            (number * SECOND, 1 + number as usize % 1500)
        );
        assert!(packet.bytes.iter().all(|byte| *byte == number as u8));
    }
    assert!(!capture.advance().unwrap() && !capture.is_cut_off());
}
