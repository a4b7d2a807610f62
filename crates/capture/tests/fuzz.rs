//! The body of the fuzz target `capture` on damaged captures.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use twinprobe_fuzz::{capture, runner};

/// The kinds of links whose packets get a header.
const LINKS: [u32; 7] = [0, 101, 105, 113, 127, 229, 276];

/// Returns a pcap file of a kind of link with packets of these sizes.
fn pcap(magic: u32, link_type: u32, packets: &[usize]) -> Vec<u8> {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let packet = |size: &usize| {
        [
            words(&[7, 8, *size as u32, *size as u32]),
            vec![*size as u8; *size],
        ]
        .concat()
    };
    let head = words(&[magic, 4 << 16 | 2, 0, 0, 65535, link_type]);
    head.into_iter()
        .chain(packets.iter().flat_map(packet))
        .collect()
}

/// Returns a pcapng file with a block of each kind that is read, and one of names.
fn pcapng() -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let (kind, length) = (kind.to_le_bytes(), (12 + body.len() as u32).to_le_bytes());
        [&kind[..], &length, body, &length].concat()
    };
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    [
        block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX])),
        // With the options for the resolution and the offset of stamps.
        block(1, &words(&[1, 0, 1 << 16 | 9, 9, 8 << 16 | 14, 100, 0, 0])),
        // With the option that tells the direction.
        block(6, &words(&[0, 1, 2, 16, 16, 1, 2, 3, 4, 4 << 16 | 2, 2, 0])),
        block(3, &words(&[16, 1, 2, 3, 4])),
        block(4, &words(&[1, 4, 0])),
        block(6, &words(&[0, 1, 3, 16, 1514, 5, 6, 7, 8])),
        // The packet block that was first, with a direction.
        block(2, &words(&[0, 1, 2, 16, 16, 1, 2, 3, 4, 4 << 16 | 2, 1, 0])),
    ]
    .concat()
}

/// Returns a snoop file with a packet of 60 bytes and one of 3.
fn snoop() -> Vec<u8> {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect::<Vec<u8>>()
    };
    let packet = |size: u32| {
        let filled = size.next_multiple_of(4);
        [
            words(&[size, size, 24 + filled, 0, 7, 8]),
            vec![size as u8; filled as usize],
        ]
        .concat()
    };
    [
        b"snoop\0\0\0".to_vec(),
        words(&[2, 4]),
        packet(60),
        packet(3),
    ]
    .concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

#[test]
fn captures() {
    let mut seeds = vec![
        pcap(0xa1b2_c3d4, 1, &[60, 1, 0, 1514]),
        pcap(0xa1b2_3c4d, 1, &[14; 9]),
        pcap(0xa1b2_cd34, 1, &[60; 3]),
        pcapng(),
        snoop(),
        gzip(&pcapng()),
        compress_to_vec(&pcapng()[..], CompressionLevel::Fastest),
    ];
    seeds.extend(LINKS.map(|link_type| pcap(0xa1b2_c3d4, link_type, &[60, 9, 0, 0x45])));
    runner::run("capture", Duration::from_secs(2), &seeds, capture::capture);
    runner::assert_little_memory();
}
