//! Readings of maps of the real kernel, made for the tests: runs as root.

pub mod concurrent;
pub mod edges;
pub mod nested;
pub mod speed;
pub mod strategies;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{Layout, MapFamily, MapKind, RawTable, TableLayout};

use crate::read::access::{MapAccess, Operations, Strategy};
use crate::read::map::MetricMap;
use crate::read::table::MapTable;
use crate::sys::call::KernelError;
use crate::sys::cpus;
use crate::sys::map::{self, MapCreate};
use crate::trial::maps;

pub const BPF_F_NO_PREALLOC: u32 = 1;
/// The number of entries: not a power of two, as the sizes of the kernel's tables are.
pub const ENTRIES: u32 = 1237;

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn cpus() -> usize {
    cpus::possible_cpus().unwrap()
}

pub fn create(
    kind: MapKind,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
) -> OwnedFd {
    let flags = flags
        | if kind == MapKind::LpmTrie {
            BPF_F_NO_PREALLOC
        } else {
            0
        };
    let map_type = kind.bpf_type().unwrap();
    let create = MapCreate {
        name: "tp_test",
        map_type,
        key_size,
        value_size,
        max_entries,
        flags,
        ..MapCreate::default()
    };
    map::map_create(&create).unwrap()
}

pub fn layout(kind: MapKind, key_size: u32, value_size: u32) -> Arc<TableLayout> {
    let slots = if kind.is_percpu() { cpus() } else { 1 };
    let (key, value) = (
        Layout::opaque(key_size as usize),
        Layout::opaque(value_size as usize),
    );
    Arc::new(TableLayout {
        kind,
        key,
        value,
        slots,
        inner: None,
    })
}

/// Makes a map of this kind as the daemon would read it, with chunks of `chunk_bytes`.
pub fn table(
    kind: MapKind,
    sizes: (u32, u32),
    max_entries: u32,
    access: MapAccess,
    chunk_bytes: usize,
) -> MapTable {
    let fd = create(kind, sizes.0, sizes.1, max_entries, 0);
    let table = MapTable::new(
        fd,
        "test",
        layout(kind, sizes.0, sizes.1),
        max_entries,
        [access; 2],
    );
    MapTable {
        chunk_bytes,
        ..table
    }
}

/// Returns every way to read maps of this kind.
pub fn accesses(kind: MapKind) -> Vec<MapAccess> {
    let operations = maps::operations(kind, cpus()).unwrap();
    let best = MapAccess::new(kind, operations);
    let mut accesses = vec![best];
    if kind.family() == MapFamily::Hash {
        accesses.push(MapAccess {
            strategy: Strategy::LookupBatchThenDeleteBatch,
            ..best
        });
        let without = Operations {
            lookup_and_delete: false,
            ..operations
        };
        accesses.push(MapAccess {
            operations: without,
            ..best.iterative()
        });
    }
    if best.iterative() != best {
        accesses.push(best.iterative());
    }
    accesses
}

/// Makes the `number`th key, which is a prefix for tries; all keys differ.
pub fn key(kind: MapKind, key_size: u32, number: u32) -> Vec<u8> {
    let mut key = match kind {
        MapKind::LpmTrie => [(8 * (key_size - 4)).to_ne_bytes(), number.to_be_bytes()].concat(),
        _ => number.to_le_bytes().to_vec(),
    };
    key.resize(key_size as usize, 0);
    key
}

/// Makes the value that belongs to the `number`th key: all values differ, and so do the slots of
/// one value.
pub fn value(layout: &TableLayout, number: u32) -> Vec<u8> {
    let mut value = Vec::new();
    for slot in 0..layout.slots {
        let byte = |i: usize| (number as usize * 31 + i * 7 + slot * 101) as u8 | 1;
        value.extend((0..layout.value.size).map(byte));
        value.resize((slot + 1) * layout.slot_stride(), 0);
    }
    value
}

/// Writes entries `0..count` and returns them.
pub fn fill(table: &MapTable, count: u32) -> Rows {
    let layout = &table.layout;
    let mut rows = Rows::new();
    for number in 0..count {
        let key = key(layout.kind, layout.key.size as u32, number);
        let value = value(layout, number);
        map::map_update(table.fd(), &key, &value).unwrap();
        rows.insert(key, value);
    }
    rows
}

/// Reads the whole map, and checks that no key comes twice and that chunks are not larger than
/// allowed.
pub fn read(table: &MapTable, after: AfterRead) -> Rows {
    let mut rows = Rows::new();
    let mut sink = |chunk: &mut RawTable| {
        let largest = table.chunk_bytes + table.key_size() + table.value_stride();
        assert!(
            chunk.keys.len() + chunk.values.len() <= largest || table.chunk_bytes == 1,
            "chunk too large"
        );
        collect(&mut rows, &table.layout, chunk);
        ControlFlow::Continue(())
    };
    let flow = table.read_chunks(after, &mut sink).unwrap();
    assert!(flow.is_continue());
    rows
}

pub fn collect(rows: &mut Rows, layout: &TableLayout, chunk: &RawTable) {
    for (key, value) in chunk.entries(layout) {
        assert_eq!(
            rows.insert(key.to_vec(), value.to_vec()),
            None,
            "twice: {key:?}"
        );
    }
}

/// Returns the rows of a map without entries: none, or zeros.
pub fn emptied(table: &MapTable, rows: &Rows) -> Rows {
    match table.layout.kind.family() {
        MapFamily::Array => rows
            .keys()
            .map(|key| (key.clone(), vec![0; table.value_stride()]))
            .collect(),
        _ => Rows::new(),
    }
}

pub fn keyed_kinds() -> impl Iterator<Item = MapKind> {
    MapKind::ALL
        .into_iter()
        .filter(|kind| kind.has_keys() && !kind.is_nested())
}

/// LRU maps forget entries before they are full.
pub fn capacity(kind: MapKind) -> u32 {
    if matches!(kind, MapKind::LruHash | MapKind::LruPercpuHash) {
        16 * ENTRIES
    } else {
        ENTRIES
    }
}
