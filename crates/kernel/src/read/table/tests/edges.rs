//! Limits of sizes, and rare answers of the kernel, each provoked.

use super::*;
use crate::read::walk::batch::Batches;
use crate::sys::batch::{self, BatchCursor};
use crate::sys::map as sys_map;

/// A batch of one entry has no room for a bucket of two: the kernel answers ENOSPC, and the reader
/// asks for the same bucket with twice the room.
#[test]
fn buckets_larger_than_a_batch() {
    for kind in [
        MapKind::Hash,
        MapKind::PercpuHash,
        MapKind::LruHash,
        MapKind::LruPercpuHash,
    ] {
        for delete in [false, true] {
            let table = table(kind, (4, 8), 1 << 14, accesses(kind)[0], 1);
            let expected = fill(&table, 9_000);
            let mut batches = Batches::new(&table);
            let (mut rows, mut all) = (RawTable::default(), Rows::new());
            let mut more = true;
            while more {
                more = batches.next(&mut rows, delete).unwrap();
                collect(&mut all, &table.layout, &rows);
            }
            assert!(
                batches.room > 1,
                "no bucket has two entries: nothing was tested"
            );
            assert_eq!(all, expected, "{kind:?}");
        }
    }
}

/// The last batch ends with ENOENT and still has entries.
#[test]
fn the_last_batch_has_a_count() {
    let table = table(
        MapKind::Hash,
        (4, 8),
        100,
        accesses(MapKind::Hash)[0],
        1 << 20,
    );
    fill(&table, 10);
    let (mut keys, mut values) = (vec![0; 400], vec![0; 800]);
    let mut cursor = BatchCursor::new(4);
    let outcome =
        batch::map_lookup_batch(table.fd(), &mut cursor, &mut keys, &mut values, 100, false);
    assert_eq!((outcome.errno(), outcome.count), (libc::ENOENT, 10));
}

/// ENOTSUPP and EPERM do not change the count that the caller has passed, although no entry has
/// moved.
#[test]
fn a_refused_call_moves_nothing() {
    const ENOTSUPP: i32 = 524;
    const BPF_F_WRONLY: u32 = 1 << 4;
    let (mut keys, mut values) = (vec![0; 64], vec![0; 64]);
    let mut lookup = |map: &OwnedFd, delete| {
        let mut cursor = BatchCursor::new(4);
        let outcome =
            batch::map_lookup_batch(map.as_fd(), &mut cursor, &mut keys, &mut values, 5, delete);
        (outcome.errno(), outcome.count)
    };
    let queue = create(MapKind::Queue, 0, 8, 10, 0);
    let array = create(MapKind::Array, 4, 8, 10, 0);
    let hidden = create(MapKind::Hash, 4, 8, 10, BPF_F_WRONLY);
    assert_eq!(lookup(&queue, false), (ENOTSUPP, 0));
    assert_eq!(lookup(&array, true), (ENOTSUPP, 0));
    assert_eq!(lookup(&hidden, false), (libc::EPERM, 0));
    let outcome = batch::map_delete_batch(array.as_fd(), &[0; 20], 5);
    assert_eq!((outcome.errno(), outcome.count), (ENOTSUPP, 0));
}

/// A batch that fails at one entry has moved the entries before it.
#[test]
fn a_batch_that_fails_in_its_middle_has_a_count() {
    let hash = create(MapKind::Hash, 4, 4, 10, 0);
    let keys: Vec<u8> = [1_u32, 2, 3, 4]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    assert!(
        batch::map_update_batch(hash.as_fd(), &keys[..8], &[7; 8], 2)
            .result
            .is_ok()
    );
    let outcome = batch::map_delete_batch(hash.as_fd(), &keys, 4);
    assert_eq!((outcome.errno(), outcome.count), (libc::ENOENT, 2));
    let array = create(MapKind::Array, 4, 4, 2, 0);
    let keys: Vec<u8> = [0_u32, 1, 2]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    let outcome = batch::map_update_batch(array.as_fd(), &keys, &[7; 12], 3);
    assert_eq!((outcome.errno(), outcome.count), (libc::E2BIG, 2));
}

/// Keys and values of odd sizes. The kernel pads PERCPU values to 8 bytes.
#[test]
fn odd_sizes() {
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LruPercpuHash] {
        for key_size in [1, 3, 5, 7, 13] {
            for value_size in [1, 3, 5, 7, 8, 9, 20] {
                for access in accesses(kind) {
                    let table = table(kind, (key_size, value_size), 4096, access, 700);
                    let expected = fill(&table, if key_size == 1 { 256 } else { 300 });
                    assert_eq!(
                        read(&table, AfterRead::Reset),
                        expected,
                        "{kind:?} {key_size} {value_size}"
                    );
                    assert_eq!(read(&table, AfterRead::Keep), Rows::new());
                }
            }
        }
    }
    for value_size in [1, 3, 7, 9, 100] {
        for kind in [MapKind::Array, MapKind::PercpuArray] {
            let table = table(kind, (4, value_size), ENTRIES, accesses(kind)[0], 700);
            let expected = fill(&table, ENTRIES);
            assert_eq!(
                read(&table, AfterRead::Keep),
                expected,
                "{kind:?} {value_size}"
            );
        }
    }
    // Prefixes of 1 to 4 bytes of data.
    for data in 1..=4 {
        for access in accesses(MapKind::LpmTrie) {
            let table = table(MapKind::LpmTrie, (4 + data, 3), ENTRIES, access, 64);
            let mut expected = Rows::new();
            for number in 0..200_u32 {
                let mut key = (8 * data).to_ne_bytes().to_vec();
                key.extend_from_slice(&(number + 1).to_le_bytes()[..data as usize]);
                let value = value(&table.layout, number);
                sys_map::map_update(table.fd(), &key, &value).unwrap();
                expected.insert(key, value);
            }
            assert_eq!(read(&table, AfterRead::Reset), expected);
            assert_eq!(read(&table, AfterRead::Keep), Rows::new());
        }
    }
}

/// The kernel has no maps of values without bytes.
#[test]
fn values_have_at_least_one_byte() {
    for kind in keyed_kinds() {
        let map_type = kind.bpf_type().unwrap();
        let (key_size, flags) = if kind == MapKind::LpmTrie {
            (8, BPF_F_NO_PREALLOC)
        } else {
            (4, 0)
        };
        let create = MapCreate {
            map_type,
            key_size,
            max_entries: 1,
            flags,
            ..MapCreate::default()
        };
        assert_eq!(
            sys_map::map_create(&create).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
    }
}

/// Prefixes that cover each other are separate entries.
#[test]
fn prefixes_of_prefixes() {
    for access in accesses(MapKind::LpmTrie) {
        for chunk_bytes in [1, 64, 1 << 20] {
            let table = table(MapKind::LpmTrie, (8, 8), 1000, access, chunk_bytes);
            let mut expected = Rows::new();
            for length in 0..=32_u32 {
                let address = if length == 0 {
                    0
                } else {
                    0xc0a8_0101_u32 >> (32 - length) << (32 - length)
                };
                let key = [length.to_ne_bytes(), address.to_be_bytes()].concat();
                let value = value(&table.layout, length);
                sys_map::map_update(table.fd(), &key, &value).unwrap();
                expected.insert(key, value);
            }
            assert_eq!(read(&table, AfterRead::Keep), expected);
            assert_eq!(read(&table, AfterRead::Reset), expected);
            assert_eq!(read(&table, AfterRead::Keep), Rows::new());
        }
    }
}
