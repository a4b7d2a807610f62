//! Maps that change while they are read live: the reading ends, has no key twice, and has no entry
//! that was never in the map.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;
use crate::sys::map as sys_map;

/// The number of keys that the writer uses.
const KEYS: u32 = 3000;

/// Inserts and deletes keys until `stop` is set, each key always with the value that belongs to it.
fn churn(table: &MapTable, stop: &AtomicBool, writes: &AtomicU64) {
    let layout = &table.layout;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    while !stop.load(Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let number = (random % u64::from(KEYS)) as u32;
        let key = key(layout.kind, layout.key.size as u32, number);
        let result = if random >> 40 & 1 == 0 {
            sys_map::map_update(table.fd(), &key, &value(layout, number))
        } else {
            sys_map::map_delete(table.fd(), &key).map(drop)
        };
        // A full map refuses new keys.
        assert!(
            result.is_ok() || result.is_err_and(|error| error.raw_os_error() == Some(libc::E2BIG))
        );
        writes.fetch_add(1, Relaxed);
    }
}

#[test]
fn maps_that_change_while_they_are_read() {
    let kinds = [
        MapKind::Hash,
        MapKind::LruHash,
        MapKind::PercpuHash,
        MapKind::LruPercpuHash,
        MapKind::LpmTrie,
    ];
    for kind in kinds {
        let key_size = if kind == MapKind::LpmTrie { 8 } else { 4 };
        for access in accesses(kind) {
            for after in [AfterRead::Keep, AfterRead::Reset] {
                let table = table(kind, (key_size, 16), 2000, access, 512);
                fill(&table, 500);
                let known: Rows = (0..KEYS)
                    .map(|n| (key(kind, key_size, n), value(&table.layout, n)))
                    .collect();
                let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
                std::thread::scope(|scope| {
                    scope.spawn(|| churn(&table, &stop, &writes));
                    let mut readings = 0;
                    while readings < 10 || writes.load(Relaxed) < 10_000 {
                        readings += 1;
                        let rows = read(&table, after);
                        for (key, value) in rows {
                            assert_eq!(
                                Some(&value),
                                known.get(&key),
                                "{kind:?} {:?}: garbage",
                                access.strategy
                            );
                        }
                    }
                    stop.store(true, Relaxed);
                });
            }
        }
    }
}

/// A program that deletes the key at the cursor makes the kernel start again from the first key.
#[test]
fn deletion_under_the_walk() {
    for kind in [MapKind::Hash, MapKind::LpmTrie] {
        let key_size = if kind == MapKind::LpmTrie { 8 } else { 4 };
        for access in accesses(kind) {
            for after in [AfterRead::Keep, AfterRead::Reset] {
                let table = table(kind, (key_size, 8), ENTRIES, access, 256);
                let expected = fill(&table, ENTRIES);
                let mut rows = Rows::new();
                let mut sink = |chunk: &mut RawTable| {
                    collect(&mut rows, &table.layout, chunk);
                    // The cursor is at the last keys of the chunk; the loop also deletes every
                    // other key of the chunk.
                    for (index, (key, _)) in chunk.entries(&table.layout).enumerate() {
                        if index % 2 == 0 || index > 10 {
                            sys_map::map_delete(table.fd(), key).unwrap();
                        }
                    }
                    ControlFlow::Continue(())
                };
                assert!(table.read_chunks(after, &mut sink).unwrap().is_continue());
                // The rows have every entry: the reader deleted only entries from its readings.
                assert_eq!(rows, expected, "{kind:?} {:?} {after:?}", access.strategy);
            }
        }
    }
}

/// The kernel returns keys of a trie twice after the key at the cursor was deleted: this test
/// provokes it, so that a change of the kernel is noticed.
#[test]
fn a_trie_whose_cursor_is_deleted_starts_again() {
    use crate::read::walk::batch::Batches;
    let kind = MapKind::LpmTrie;
    let access = accesses(kind)[0];
    if access.strategy == Strategy::Iterative {
        // This kernel can't read tries in batches.
        return;
    }
    let table = table(kind, (8, 8), ENTRIES, access, 20 * 16);
    fill(&table, ENTRIES);
    let mut batches = Batches::new(&table);
    let (mut first, mut second) = (RawTable::default(), RawTable::default());
    batches.next(&mut first, false).unwrap();
    let last = first.keys.len() - 8;
    sys_map::map_delete(table.fd(), &first.keys[last..]).unwrap();
    batches.next(&mut second, false).unwrap();
    let again = second
        .keys
        .chunks(8)
        .filter(|key| first.keys.chunks(8).any(|old| old == *key))
        .count();
    assert!(
        again > 0,
        "the kernel goes on after a deleted cursor: nothing to test"
    );
}
