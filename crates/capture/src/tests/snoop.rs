//! Files of snoop.

use super::*;

fn head(kind: u32) -> Vec<u8> {
    let words = [2, kind].map(u32::to_be_bytes).concat();
    [&b"snoop\0\0\0"[..], &words].concat()
}

fn packet(time: [u32; 2], length: u32, bytes: &[u8]) -> Vec<u8> {
    let size = bytes.len().next_multiple_of(4);
    let words = [
        length,
        bytes.len() as u32,
        24 + size as u32,
        0,
        time[0],
        time[1],
    ];
    let mut packet = words.map(u32::to_be_bytes).concat();
    packet.extend(bytes);
    packet.resize(24 + size, 0xee);
    packet
}

#[test]
fn packets_of_snoop_are_read() {
    let parts = [
        head(4),
        packet([1_700_000_000, 5], 61, &[1; 61]),
        packet([1_700_000_001, 999_999], 1514, &[2; 96]),
        packet([2, 0], 0, &[]),
    ];
    let expected = [
        (1_700_000_000 * SECOND + 5000, None, 61, vec![1; 61]),
        (
            1_700_000_001 * SECOND + 999_999_000,
            None,
            1514,
            vec![2; 96],
        ),
        (2 * SECOND, None, 0, vec![]),
    ];
    let whole = parts.concat();
    assert_eq!(packets(&whole).unwrap(), (expected.to_vec(), false));
    let ends: Vec<usize> = (1..=parts.len())
        .map(|count| parts[..count].concat().len())
        .collect();
    for end in 8..whole.len() {
        if end < ends[0] {
            assert!(message(&whole[..end]).contains("neither"), "{end}");
            continue;
        }
        let (found, is_cut_off) = packets(&whole[..end]).unwrap();
        assert_eq!(
            found.len(),
            ends[1..].iter().filter(|at| **at <= end).count(),
            "{end}"
        );
        assert_eq!(is_cut_off, !ends.contains(&end), "{end}");
    }
}

#[test]
fn what_snoop_has_of_other_links_is_counted_and_what_is_damaged_refused() {
    let (found, capture) = read(
        &[head(8), packet([1, 1], 60, &[0; 60])].concat(),
        u64::MAX,
        &[],
    )
    .unwrap();
    assert!(found.is_empty());
    assert_eq!(counts(capture.skipped()), [("SNOOP_8", 1)]);
    for (at, wrong) in [(4, 262_145), (4, u32::MAX), (8, 23), (8, 83), (8, u32::MAX)] {
        let mut damaged = packet([1, 1], 60, &[0; 60]);
        damaged[at..at + 4].copy_from_slice(&u32::to_be_bytes(wrong));
        let text = message(&[head(4), packet([1, 1], 60, &[0; 60]), damaged].concat());
        assert!(text.starts_with("after 1 packets: the next one "), "{text}");
    }
}
