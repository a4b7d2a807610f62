//! Files in pcapng.

use super::*;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE: u32 = 2;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;
const RESOLUTION: u16 = 9;
const OFFSET: u16 = 14;
const FLAGS: u16 = 2;

impl Words {
    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let body = padded(body);
        let length = self.word(12 + body.len() as u32);
        [&self.word(kind)[..], &length, &body, &length].concat()
    }

    fn section(self) -> Vec<u8> {
        let version = [self.short(1), self.short(0)].concat();
        self.block(
            SECTION,
            &[&self.word(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat(),
        )
    }

    fn interface(self, link_type: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
        let head = [self.short(link_type), self.short(0)].concat();
        self.block(
            INTERFACE,
            &[&head[..], &self.word(0), &self.options(options)].concat(),
        )
    }

    fn enhanced(
        self,
        interface: u32,
        ticks: u64,
        bytes: &[u8],
        options: &[(u16, &[u8])],
    ) -> Vec<u8> {
        let length = bytes.len() as u32;
        let head = self.all(&[
            interface,
            (ticks >> 32) as u32,
            ticks as u32,
            length,
            length,
        ]);
        self.block(
            ENHANCED,
            &[&head[..], &padded(bytes), &self.options(options)].concat(),
        )
    }

    fn options(self, options: &[(u16, &[u8])]) -> Vec<u8> {
        let option = |(code, value): &(u16, &[u8])| {
            [
                &self.short(*code)[..],
                &self.short(value.len() as u16),
                &padded(value),
            ]
            .concat()
        };
        let end = if options.is_empty() {
            vec![]
        } else {
            vec![0; 4]
        };
        [options.iter().flat_map(option).collect(), end].concat()
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(4), 0);
    padded
}

#[test]
fn stamps_have_the_resolution_of_their_interface() {
    for words in Words::BOTH {
        let offset = if words.big_endian {
            100_i64.to_be_bytes()
        } else {
            100_i64.to_le_bytes()
        };
        // Ticks per second by the option: 10 to the sixth (without the option), 10 to a power, 2 to
        // a power.
        type Case<'a> = (&'a [(u16, &'a [u8])], u64, u64);
        let interfaces: [Case<'_>; 7] = [
            (&[], 3_000_001, 3 * SECOND + 1000),
            (&[(RESOLUTION, &[9])], 3_000_000_001, 3 * SECOND + 1),
            (&[(RESOLUTION, &[0])], 3, 3 * SECOND),
            (&[(RESOLUTION, &[12])], 3_000_000_001_999, 3 * SECOND + 1),
            (
                &[(RESOLUTION, &[0x80 | 10])],
                3 << 10 | 512,
                3 * SECOND + SECOND / 2,
            ),
            (
                &[(RESOLUTION, &[9]), (OFFSET, &offset)],
                1,
                100 * SECOND + 1,
            ),
            // No clock has this many ticks, so the stamp counts as 0.
            (&[(RESOLUTION, &[0xff])], u64::MAX, 0),
        ];
        let mut file = words.section();
        for (options, _, _) in interfaces {
            file.extend(words.interface(1, options));
        }
        for (number, (_, ticks, _)) in interfaces.iter().enumerate() {
            file.extend(words.enhanced(number as u32, *ticks, &[number as u8; 61], &[]));
        }
        let (found, is_cut_off) = packets(&file).unwrap();
        assert!(!is_cut_off);
        for (number, (found, (_, _, expected))) in found.iter().zip(interfaces).enumerate() {
            assert_eq!(*found, (expected, None, 61, vec![number as u8; 61]));
        }
        assert_eq!(found.len(), interfaces.len());
    }
}

#[test]
fn packets_may_tell_their_direction() {
    for words in Words::BOTH {
        let mut file = [words.section(), words.interface(1, &[])].concat();
        for flags in [0_u32, 1, 2, 3, 0x8000_0002] {
            file.extend(words.enhanced(0, 1, &[0; 14], &[(FLAGS, &words.word(flags))]));
        }
        let directions: Vec<_> = packets(&file)
            .unwrap()
            .0
            .into_iter()
            .map(|packet| packet.1)
            .collect();
        let (ingress, egress) = (Some(Direction::Ingress), Some(Direction::Egress));
        assert_eq!(directions, [None, ingress, egress, None, egress]);
    }
}

#[test]
fn a_simple_packet_has_the_time_of_the_one_before() {
    let words = Words::BOTH[0];
    let simple = words.block(SIMPLE, &[&words.word(15)[..], &padded(&[7; 15])].concat());
    let file = [
        words.section(),
        words.interface(1, &[]),
        simple.clone(),
        words.enhanced(0, 5_000_000, &[1; 14], &[]),
        simple,
    ]
    .concat();
    let (found, _) = packets(&file).unwrap();
    assert_eq!(found[0], (0, None, 15, vec![7; 15]));
    assert_eq!((found[1].0, found[2].0), (5 * SECOND, 5 * SECOND));
}

#[test]
fn sections_have_their_own_interfaces_and_byte_order() {
    let [little, big] = Words::BOTH;
    let nano: &[(u16, &[u8])] = &[(RESOLUTION, &[9])];
    let file = [
        little.section(),
        little.interface(1, &[]),
        little.enhanced(0, 1, &[1; 14], &[]),
        // Blocks without a packet: names, statistics, and an unknown one.
        little.block(4, &[0; 4]),
        little.block(0x0bad, &[1; 400]),
        big.section(),
        big.interface(1, nano),
        big.enhanced(0, 1, &[2; 14], &[]),
    ]
    .concat();
    let (found, _) = packets(&file).unwrap();
    assert_eq!(
        found.iter().map(|packet| packet.0).collect::<Vec<_>>(),
        [1000, 1]
    );
    // The second section has no second interface.
    let whole = [
        file,
        big.enhanced(1, 1, &[0; 14], &[]),
        big.enhanced(0, 5, &[3; 14], &[]),
    ]
    .concat();
    let (found, capture) = read(&whole, u64::MAX, &[]).unwrap();
    assert_eq!(
        found.iter().map(|packet| packet.0).collect::<Vec<_>>(),
        [1000, 1, 5]
    );
    assert_eq!(counts(capture.skipped()), [("unknown_interface", 1)]);
}

/// A packet in the block that pcapng had first.
fn obsolete(
    words: Words,
    interface: u16,
    ticks: u64,
    bytes: &[u8],
    options: &[(u16, &[u8])],
) -> Vec<u8> {
    let length = bytes.len() as u32;
    let head = [words.short(interface), words.short(0xffff)].concat();
    let rest = words.all(&[(ticks >> 32) as u32, ticks as u32, length, length + 2]);
    words.block(
        OBSOLETE,
        &[&head[..], &rest, &padded(bytes), &words.options(options)].concat(),
    )
}

#[test]
fn the_first_kind_of_packet_block_is_read() {
    for words in Words::BOTH {
        let nano: &[(u16, &[u8])] = &[(RESOLUTION, &[9])];
        let file = [
            words.section(),
            words.interface(1, &[]),
            words.interface(1, nano),
            obsolete(words, 1, 7 << 32, &[1; 61], &[]),
            obsolete(
                words,
                0,
                2,
                &[2; 14],
                &[(1, b"note"), (FLAGS, &words.word(2))],
            ),
            obsolete(words, 9, 2, &[2; 14], &[]),
            obsolete(words, 1, 3, &[], &[(FLAGS, &words.word(1))]),
        ]
        .concat();
        let (found, capture) = read(&file, u64::MAX, &[]).unwrap();
        let expected = [
            (7 << 32, None, 63, vec![1; 61]),
            (2000, Some(Direction::Egress), 16, vec![2; 14]),
            (3, Some(Direction::Ingress), 2, vec![]),
        ];
        assert_eq!(found, expected);
        assert_eq!(counts(capture.skipped()), [("unknown_interface", 1)]);
        // A block that claims more bytes than it has.
        let body = [&words.word(0)[..], &words.all(&[0, 0, 99, 99]), &[0; 40]].concat();
        let text = message(&[file, words.block(OBSOLETE, &body)].concat());
        assert!(
            text.contains("after 4 packets: the next one claims more bytes than its block has"),
            "{text}"
        );
    }
}

#[test]
fn packets_that_no_probe_can_get_are_counted_and_skipped() {
    let words = Words::BOTH[0];
    let file = [
        words.section(),
        words.block(SIMPLE, &[0; 20]),
        words.interface(147, &[]),
        words.interface(1, &[]),
        words.enhanced(0, 1, &[1; 14], &[]),
        words.enhanced(1, 2, &[2; 14], &[]),
        words.enhanced(1, 3, &vec![3; 262_145], &[]),
        words.enhanced(0, 4, &[4; 14], &[]),
        words.enhanced(1, 5, &vec![5; 262_144], &[]),
    ]
    .concat();
    let (found, capture) = read(&file, u64::MAX, &[]).unwrap();
    assert_eq!(
        found
            .iter()
            .map(|packet| packet.3.len())
            .collect::<Vec<_>>(),
        [14, 262_144]
    );
    let expected = [
        ("LINKTYPE_147", 2),
        ("too_long", 1),
        ("unknown_interface", 1),
    ];
    assert_eq!(counts(capture.skipped()), expected);
    assert!(capture.framed().is_empty() && !capture.is_cut_off());
}

#[test]
fn a_damaged_file_has_an_end() {
    let words = Words::BOTH[0];
    let blocks = [
        words.section(),
        words.interface(1, &[(RESOLUTION, &[9])]),
        words.enhanced(0, 1, &[1; 60], &[(FLAGS, &words.word(1))]),
        words.enhanced(0, 2, &[2; 60], &[]),
    ];
    let ends: Vec<usize> = (1..=blocks.len())
        .map(|count| blocks[..count].concat().len())
        .collect();
    let whole = blocks.concat();
    for end in ends[0]..=whole.len() {
        let (found, is_cut_off) = packets(&whole[..end]).unwrap();
        assert_eq!(
            found.len(),
            ends[2..].iter().filter(|at| **at <= end).count(),
            "{end}"
        );
        assert_eq!(is_cut_off, !ends.contains(&end), "{end}");
    }
    // Every word, lengths included, gets every kind of wrong value.
    for at in (0..whole.len()).step_by(4) {
        for wrong in [0, 1, 3, 12, 0xffff, 0x7fff_ffff, u32::MAX] {
            let mut file = whole.clone();
            file[at..at + 4].copy_from_slice(&words.word(wrong));
            let _ = packets(&file).map(|(found, _)| assert!(found.len() <= 2));
        }
    }
    let long = [
        &words.word(0x0bad)[..],
        &words.word(4 << 20),
        &vec![0; 4 << 20],
    ]
    .concat();
    assert!(message(&[whole, long].concat()).contains("after 2 packets"));
}
