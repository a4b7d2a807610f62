//! Every strategy reads the same rows and takes the same entries out of the map.

use super::*;
use crate::read::table;
use crate::sys::{batch, map as sys_map};

#[test]
fn all_strategies_agree() {
    for kind in keyed_kinds() {
        let key_size = if kind == MapKind::LpmTrie { 8 } else { 4 };
        for access in accesses(kind) {
            for chunk_bytes in [1, 1000, 1 << 20] {
                let max_entries = capacity(kind);
                let table = table(kind, (key_size, 12), max_entries, access, chunk_bytes);
                let mut rows = fill(&table, ENTRIES);
                let context = format!("{kind:?} {:?} {chunk_bytes}", access.strategy);
                assert_eq!(read(&table, AfterRead::Keep), rows, "{context}");
                assert_eq!(read(&table, AfterRead::Reset), rows, "{context}, reset");
                rows = emptied(&table, &rows);
                assert_eq!(
                    read(&table, AfterRead::Reset),
                    rows,
                    "{context}, after the reset"
                );
            }
        }
    }
}

#[test]
fn queues_and_stacks_are_popped_in_order() {
    for (kind, chunk_bytes) in [
        (MapKind::Queue, 1),
        (MapKind::Queue, 4096),
        (MapKind::Stack, 64),
    ] {
        let access = accesses(kind)[0];
        let table = table(kind, (0, 4), ENTRIES, access, chunk_bytes);
        for number in 0..ENTRIES {
            sys_map::map_update(table.fd(), &[], &number.to_ne_bytes()).unwrap();
        }
        let out = MetricMap::Table(table).read(AfterRead::Reset).unwrap();
        let mut numbers: Vec<u32> = out
            .values
            .chunks_exact(4)
            .map(|value| u32::from_ne_bytes(value.try_into().unwrap()))
            .collect();
        if kind == MapKind::Stack {
            numbers.reverse();
        }
        assert_eq!(numbers, (0..ENTRIES).collect::<Vec<_>>());
    }
}

/// A map may lack operations that the trial of its type found: the daemon asks the map itself, and
/// reads it entry by entry.
#[test]
fn a_map_that_lacks_what_its_type_has() {
    const BPF_F_RDONLY: u32 = 1 << 3;
    let kind = MapKind::Hash;
    let fd = create(kind, 4, 8, ENTRIES, BPF_F_RDONLY);
    let table = MapTable::new(
        fd,
        "test",
        layout(kind, 4, 8),
        ENTRIES,
        [accesses(kind)[0]; 2],
    );
    assert_eq!(table.strategy(), Strategy::Iterative);
    assert_eq!(read(&table, AfterRead::Keep), Rows::new());
    let array = create(MapKind::Array, 4, 8, 3, BPF_F_RDONLY);
    let access = accesses(MapKind::Array)[0];
    let table = MapTable::new(array, "test", layout(MapKind::Array, 4, 8), 3, [access; 2]);
    let error: KernelError = table
        .read_chunks(AfterRead::Reset, &mut |_| ControlFlow::Continue(()))
        .unwrap_err();
    assert_eq!((error.call, error.errno()), ("update", libc::EPERM));
    assert_eq!(read(&table, AfterRead::Keep).len(), 3);
}

/// A large map is read and taken in bounded chunks, each key once.
#[test]
fn a_million_entries() {
    const COUNT: u32 = 1_000_003;
    let kind = MapKind::Hash;
    let table = table(kind, (4, 8), COUNT, accesses(kind)[0], table::CHUNK_BYTES);
    let keys: Vec<u8> = (0..COUNT).flat_map(u32::to_ne_bytes).collect();
    let values: Vec<u8> = (0..COUNT)
        .flat_map(|number| u64::from(number).to_ne_bytes())
        .collect();
    assert_eq!(
        batch::map_update_batch(table.fd(), &keys, &values, COUNT as usize).count,
        COUNT as usize
    );
    for after in [AfterRead::Keep, AfterRead::Reset] {
        let mut seen = vec![false; COUNT as usize];
        let mut sink = |chunk: &mut RawTable| {
            assert!(chunk.keys.len() + chunk.values.len() <= 2 * table::CHUNK_BYTES);
            for (key, value) in chunk.entries(&table.layout) {
                let number = u32::from_ne_bytes(key.try_into().unwrap());
                assert_eq!(value, u64::from(number).to_ne_bytes());
                assert!(
                    !std::mem::replace(&mut seen[number as usize], true),
                    "{number} twice"
                );
            }
            ControlFlow::Continue(())
        };
        assert!(table.read_chunks(after, &mut sink).unwrap().is_continue());
        assert!(seen.iter().all(|seen| *seen));
    }
    assert_eq!(read(&table, AfterRead::Keep), Rows::new());
}
