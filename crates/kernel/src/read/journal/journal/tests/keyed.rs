//! Maps with keys, maps of maps and variables, drained by every strategy and after an interruption
//! at every step.

use std::os::fd::AsFd;

use aya_obj::generated::BPF_F_MMAPABLE;
use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{Layout, MapKind, TableLayout};

use super::*;
use crate::read::access::Strategy;
use crate::read::map::MetricMap;
use crate::read::table::tests::nested::{Outer, outer};
use crate::read::variable::Variable;
use crate::sys::mapping::{self, Mapping};

fn key_size(kind: MapKind) -> u32 {
    if kind == MapKind::LpmTrie { 8 } else { 4 }
}

/// Returns the rows that the journal hands on, and checks that no key comes twice.
fn drained(map: &MetricMap, journal: &Path) -> Rows {
    let mut rows = Rows::new();
    let mut sink = |chunk: &mut RawTable| {
        collect(&mut rows, map.layout(), chunk);
        ControlFlow::Continue(())
    };
    assert!(map.read_drained(journal, &mut sink).unwrap().is_continue());
    rows
}

fn table_of(map: &MetricMap) -> &MapTable {
    let MetricMap::Table(table) = map else {
        panic!("a variable")
    };
    table
}

#[test]
fn every_kind_and_every_strategy() {
    let pins = PinsDirectory::new("keyed");
    for kind in keyed_kinds() {
        for access in accesses(kind) {
            for chunk_bytes in [1, 1000, 1 << 20] {
                let context = format!("{kind:?} {:?} {chunk_bytes}", access.strategy);
                let table = table(
                    kind,
                    (key_size(kind), 12),
                    capacity(kind),
                    access,
                    chunk_bytes,
                );
                let expected = fill(&table, ENTRIES);
                let map = MetricMap::Table(table);
                let journal = pins.journal();
                map.drain_into(&journal).unwrap();
                assert_eq!(drained(&map, &journal), expected, "{context}");
                assert_eq!(
                    read(table_of(&map), AfterRead::Keep),
                    emptied(table_of(&map), &expected),
                    "{context}"
                );
                // Entries that are added later belong to the next window.
                let later = fill(table_of(&map), 10);
                map.drain_into(&journal).unwrap();
                assert_eq!(drained(&map, &journal), expected, "{context}, again");
                MetricMap::forget_drained(&journal).unwrap();
                assert!(!journal.exists(), "{context}");
                map.drain_into(&journal).unwrap();
                let next = drained(&map, &journal);
                assert!(
                    later
                        .iter()
                        .all(|(key, value)| next.get(key) == Some(value)),
                    "{context}, next"
                );
                MetricMap::forget_drained(&journal).unwrap();
            }
        }
    }
}

#[test]
fn a_map_without_entries_makes_nothing() {
    let pins = PinsDirectory::new("none");
    for kind in [MapKind::Hash, MapKind::LpmTrie] {
        for access in accesses(kind) {
            let map = MetricMap::Table(table(kind, (key_size(kind), 8), 10, access, 1000));
            map.drain_into(&pins.journal()).unwrap();
            assert!(drained(&map, &pins.journal()).is_empty() && !pins.journal().exists());
        }
    }
}

/// A process may end before a batch is taken, before its entries are rows, and before the rows are
/// marked as done.
#[test]
fn an_end_at_every_step_of_a_batch() {
    for kind in [
        MapKind::Hash,
        MapKind::LruHash,
        MapKind::PercpuHash,
        MapKind::LruPercpuHash,
    ] {
        let access = accesses(kind)[0];
        if access.strategy != Strategy::LookupAndDeleteBatch {
            // This kernel can't look up and delete batches in maps of this kind.
            continue;
        }
        for step in 0..5 {
            let pins = PinsDirectory::new("batch");
            let map = table(kind, (4, 12), capacity(kind), access, 2000);
            let expected = fill(&map, ENTRIES);
            let mut journal = pins.open(&map);
            for _ in 0..3 {
                let (before, cursor) = (journal.len(), journal.word(SegmentWord::Cursor));
                journal
                    .batch(64)
                    .unwrap()
                    .take(map.fd(), before, cursor)
                    .unwrap();
                journal.settle_batch().unwrap();
            }
            let (before, cursor) = (journal.len(), journal.word(SegmentWord::Cursor));
            assert!(before > 0 && cursor > 0);
            let batch = journal.batch(64).unwrap();
            match step {
                0 => drop(batch.prepare(map.fd(), before, cursor)),
                _ => batch.take(map.fd(), before, cursor).unwrap(),
            }
            let moved = journal.batch.as_ref().unwrap().moved().unwrap();
            assert_eq!(moved.cursor.is_some(), step > 0);
            if step > 1 {
                journal.write(before, &moved.rows).unwrap();
                journal.set(SegmentWord::Cursor, moved.cursor.unwrap());
            }
            let done = before + moved.rows.len(&map.layout);
            if step > 2 {
                journal.set(SegmentWord::Started, done);
            }
            if step > 3 {
                journal.set(SegmentWord::Done, done);
            }
            drop(journal);
            assert_eq!(pins.open(&map).len(), done, "{kind:?}, step {step}");
            let map = MetricMap::Table(map);
            map.drain_into(&pins.journal()).unwrap();
            assert_eq!(
                drained(&map, &pins.journal()),
                expected,
                "{kind:?}, step {step}"
            );
            assert!(
                read(table_of(&map), AfterRead::Keep).is_empty(),
                "{kind:?}, step {step}"
            );
        }
    }
}

/// A process may end before a chunk is marked as started, before it is reset, and before it is
/// marked as done.
#[test]
fn an_end_at_every_step_of_a_chunk() {
    for kind in [
        MapKind::Array,
        MapKind::PercpuArray,
        MapKind::LpmTrie,
        MapKind::Hash,
    ] {
        for access in accesses(kind)
            .into_iter()
            .filter(|access| access.strategy != Strategy::LookupAndDeleteBatch)
        {
            for step in 0..3 {
                let pins = PinsDirectory::new("chunk");
                let map = table(kind, (key_size(kind), 12), ENTRIES, access, 2000);
                let expected = fill(&map, ENTRIES);
                let mut journal = pins.open(&map);
                let mut first = None;
                let _ = map.read_chunks(AfterRead::Keep, &mut |chunk| {
                    first = Some(chunk.clone());
                    ControlFlow::Break(())
                });
                let first = first.unwrap();
                match step {
                    0 => journal.write(0, &first).unwrap(),
                    _ => journal.start(&map, &first).unwrap(),
                }
                if step > 1 {
                    map.reset(&first).unwrap();
                }
                drop(journal);
                assert_eq!(pins.open(&map).len(), 0);
                let map = MetricMap::Table(map);
                map.drain_into(&pins.journal()).unwrap();
                let context = format!("{kind:?} {:?}, step {step}", access.strategy);
                assert_eq!(drained(&map, &pins.journal()), expected, "{context}");
                assert_eq!(
                    read(table_of(&map), AfterRead::Keep),
                    emptied(table_of(&map), &expected),
                    "{context}"
                );
            }
        }
    }
}

/// Entries that are rows already stay out of a walk that continues: entries that have come since
/// belong to the next window.
#[test]
fn a_walk_that_goes_on_leaves_what_has_come_since() {
    for kind in [MapKind::Array, MapKind::LpmTrie] {
        let pins = PinsDirectory::new("since");
        let map = table(kind, (key_size(kind), 8), ENTRIES, accesses(kind)[0], 800);
        let expected = fill(&map, ENTRIES);
        let mut journal = pins.open(&map);
        let mut first = None;
        let _ = map.read_chunks(AfterRead::Keep, &mut |chunk| {
            first = Some(chunk.clone());
            ControlFlow::Break(())
        });
        journal.start(&map, &first.unwrap()).unwrap();
        journal.reset_started(&map).unwrap();
        drop(journal);
        let since = fill(&map, 3);
        let map = MetricMap::Table(map);
        map.drain_into(&pins.journal()).unwrap();
        assert_eq!(drained(&map, &pins.journal()), expected, "{kind:?}");
        let left = read(table_of(&map), AfterRead::Keep);
        assert!(
            since
                .iter()
                .all(|(key, value)| left.get(key) == Some(value)),
            "{kind:?}"
        );
    }
}

/// A map that can't be reset keeps its content, even after several attempts.
#[test]
fn a_map_that_can_not_be_reset() {
    for access in accesses(MapKind::Array) {
        let pins = PinsDirectory::new("frozen");
        let array = table(MapKind::Array, (4, 8), ENTRIES, access, 512);
        let expected = fill(&array, ENTRIES);
        sys_map::map_freeze(array.fd()).unwrap();
        let map = MetricMap::Table(array);
        for _ in 0..2 {
            assert_eq!(
                map.drain_into(&pins.journal()).unwrap_err().errno(),
                libc::EPERM
            );
            assert!(drained(&map, &pins.journal()).is_empty());
        }
        assert_eq!(read(table_of(&map), AfterRead::Keep), expected);
    }
}

#[test]
fn the_maps_in_maps() {
    let pins = PinsDirectory::new("inner");
    for kind in [MapKind::HashOfMaps, MapKind::ArrayOfMaps] {
        for inner_kind in [MapKind::Hash, MapKind::Array] {
            let Outer { table, inner } =
                outer(kind, inner_kind, accesses(kind)[0], accesses(inner_kind)[0]);
            let expected: Vec<Rows> = inner.iter().map(|(_, inner)| fill(inner, 100)).collect();
            let map = MetricMap::Table(table);
            let layout = Arc::clone(map.layout().inner.as_ref().unwrap());
            for _ in 0..2 {
                map.drain_into(&pins.journal()).unwrap();
                for (_, inner) in &inner {
                    assert_eq!(read(inner, AfterRead::Keep), emptied(inner, &expected[0]));
                }
                let mut found = std::collections::BTreeMap::new();
                let mut sink = |chunk: &mut RawTable| {
                    let mut rows = Rows::new();
                    collect(&mut rows, &layout, &chunk.inner[0]);
                    assert!(found.insert(chunk.keys.clone(), rows).is_none());
                    ControlFlow::Continue(())
                };
                assert!(
                    map.read_drained(&pins.journal(), &mut sink)
                        .unwrap()
                        .is_continue()
                );
                let keys = inner.iter().map(|(key, _)| key.clone());
                assert_eq!(found, keys.zip(expected.iter().cloned()).collect());
            }
            MetricMap::forget_drained(&pins.journal()).unwrap();
            assert!(!pins.journal().exists());
        }
    }
}

#[test]
fn a_variable_is_taken_once_and_reset_again_after_an_end() {
    let fd = create(MapKind::Array, 4, 24, 1, BPF_F_MMAPABLE);
    let memory =
        Arc::new(Mapping::new(fd.as_fd(), 0, 24, mapping::MappingAccess::ReadWrite).unwrap());
    let layout = Arc::new(TableLayout {
        kind: MapKind::Global,
        key: Layout::opaque(0),
        value: Layout::opaque(8),
        slots: 1,
        inner: None,
    });
    let map = MetricMap::Variable(Variable {
        memory,
        layout,
        offset: 8,
        initial: [0xee; 8].into(),
    });
    let content = |byte| {
        sys_map::map_update(fd.as_fd(), &[0; 4], &[byte; 24]).unwrap();
    };
    let now = || {
        let mut now = [0; 24];
        sys_map::map_lookup(fd.as_fd(), &[0; 4], &mut now).unwrap();
        now
    };
    let values = |journal: &Path| drained(&map, journal).into_values().next().unwrap();
    let pins = PinsDirectory::new("variable");
    content(1);
    for later in [2, 3] {
        map.drain_into(&pins.journal()).unwrap();
        assert_eq!(values(&pins.journal()), [1; 8]);
        content(later);
    }
    MetricMap::forget_drained(&pins.journal()).unwrap();
    let mut journal = Journal::open(&pins.journal(), map.layout()).unwrap();
    journal
        .write(
            0,
            &RawTable {
                values: vec![3; 8],
                ..RawTable::default()
            },
        )
        .unwrap();
    journal.set(SegmentWord::Started, 1);
    drop(journal);
    map.drain_into(&pins.journal()).unwrap();
    assert_eq!(values(&pins.journal()), [3; 8]);
    assert_eq!(
        (
            now()[..8].to_vec(),
            now()[8..16].to_vec(),
            now()[16..].to_vec()
        ),
        (vec![3; 8], vec![0xee; 8], vec![3; 8])
    );
}
