//! Compressed files.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// A frame of zstd that no decoder reads.
fn skippable(bytes: &[u8]) -> Vec<u8> {
    [
        &0x184d_2a50_u32.to_le_bytes()[..],
        &(bytes.len() as u32).to_le_bytes(),
        bytes,
    ]
    .concat()
}

fn plain() -> Vec<u8> {
    let words = Words::BOTH[0];
    // Bytes that can't be compressed much, so that there are several blocks.
    let byte = |number: u32, at: u32| {
        (number.wrapping_mul(0x9e37_79b9) ^ at.wrapping_mul(0x85eb_ca6b)) >> 13
    };
    let bytes = |number: u32| {
        (0..600)
            .map(|at| byte(number, at) as u8)
            .collect::<Vec<u8>>()
    };
    let packet = |number: u32| words.packet([number, 0], 600, &bytes(number));
    [
        words.pcap(MICRO, ETHERNET),
        (0..500).flat_map(packet).collect(),
    ]
    .concat()
}

#[test]
fn compressed_files_have_the_packets_of_plain_ones() {
    let plain = plain();
    let expected = packets(&plain).unwrap();
    assert_eq!(expected.0.len(), 500);
    // A file may have several parts, as a rotated log has, and the border of two parts may be
    // inside the head.
    let (front, back) = plain.split_at(10);
    for packed in [
        gzip(&plain),
        zstd(&plain),
        [gzip(front), gzip(back)].concat(),
        [
            zstd(front),
            skippable(&[7; 100_000]),
            zstd(back),
            skippable(b""),
        ]
        .concat(),
    ] {
        assert_eq!(packets(&packed).unwrap(), expected);
    }
}

#[test]
fn compressed_files_may_be_cut_off() {
    let plain = plain();
    let (front, back) = plain.split_at(100_000);
    let parts = [zstd(front), zstd(back)].concat();
    for packed in [gzip(&plain), parts] {
        // The decoder of zstd keeps the last bytes until a frame has ended, because it may need
        // them again.
        for end in [packed.len() * 2 / 3, packed.len() - 1] {
            let (found, is_cut_off) = packets(&packed[..end]).unwrap();
            assert!(
                is_cut_off && (100_000 / 616..=500).contains(&found.len()),
                "{} packets",
                found.len()
            );
        }
        assert!(message(&packed[..6]).contains("head is cut off"));
    }
}

#[test]
fn damage_of_compressed_files_is_told() {
    let plain = plain();
    let mut packed = gzip(&plain);
    // The check sum after the data.
    let at = packed.len() - 6;
    packed[at] ^= 1;
    let text = message(&packed);
    assert!(
        text.starts_with("after 500 packets: the bytes after them can't be decompressed"),
        "{text}"
    );
    let mut packed = zstd(&plain);
    packed.splice(4..8, [0xff; 4]);
    let text = message(&packed);
    assert!(
        text.starts_with("after 0 packets: the bytes after them can't be decompressed"),
        "{text}"
    );
    assert!(message(&gzip(b"no capture")).contains("neither pcap nor pcapng"));
    assert!(message(&gzip(b"")).contains("neither pcap nor pcapng"));
}

/// A gigabyte of zeros is a megabyte of gzip. The limit applies to the output, and the reader takes
/// little memory.
#[test]
fn what_comes_out_has_a_limit() {
    let words = Words::BOTH[0];
    let limit = 1 << 20;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&words.pcap(MICRO, ETHERNET)).unwrap();
    std::io::copy(&mut std::io::repeat(0).take(64 << 20), &mut encoder).unwrap();
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let error = read(&bomb, limit, &[]).unwrap_err();
    // A packet of zeros has 16 bytes.
    let most = limit / 16;
    let CaptureError::TooLarge {
        packets,
        limit: told,
    } = error
    else {
        panic!("{error}")
    };
    assert!(told == limit && (1..=most).contains(&packets), "{packets}");
    assert!(read(&plain(), plain().len() as u64, &[]).is_ok());
    assert!(matches!(
        read(&plain(), plain().len() as u64 - 1, &[]),
        Err(CaptureError::TooLarge { .. })
    ));
}
