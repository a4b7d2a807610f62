//! Entry by entry, for maps whose keys come and go.

use std::collections::HashSet;
use std::ops::ControlFlow;

use twinprobe_ebpf_common::RawTable;
use twinprobe_ebpf_common::metric::AfterRead;

use crate::read::table::{ReadResult, Sink, Table};
use crate::sys::call::KernelError;
use crate::sys::map;

pub fn read(map: &Table, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
    let mut rows = RawTable::default();
    let result = walk(map, after, &mut rows, sink);
    // After an error, too: these have been taken.
    let flow = if rows.is_empty() { ControlFlow::Continue(()) } else { sink(&rows) };
    result.map(|walked| if walked.is_break() { walked } else { flow })
}

/// Steps after which a walk that programs make start again and again is ended: twice what a full map needs.
pub fn limit(map: &Table) -> usize {
    map.max_entries.saturating_mul(2)
}

/// Every key once: where a key is deleted under the walk, the walk starts again and what was seen is skipped.
fn walk(map: &Table, after: AfterRead, rows: &mut RawTable, sink: &mut Sink<'_>) -> ReadResult {
    let mut seen = Seen::new(map.key_size());
    let mut value = vec![0; map.value_stride()];
    let (mut key, mut next) = (vec![0; map.key_size()], vec![0; map.key_size()]);
    let mut more = next_key(map, None, &mut key)?;
    for _ in 0..=limit(map) {
        if !more {
            break;
        }
        // Before the key is deleted, or the walk would start again for every entry.
        more = next_key(map, Some(&key), &mut next)?;
        if seen.insert(&key) {
            let found = match after {
                AfterRead::Keep => map::map_lookup(map.fd(), &key, &mut value),
                AfterRead::Reset => take(map, &key, &mut value),
            };
            if found.map_err(|error| map.error("lookup", error))? {
                rows.keys.extend_from_slice(&key);
                rows.values.extend_from_slice(&value);
            }
        }
        if rows.keys.len() + rows.values.len() >= map.chunk_bytes {
            let flow = sink(rows);
            rows.clear();
            if flow.is_break() {
                return Ok(flow);
            }
        }
        std::mem::swap(&mut key, &mut next);
    }
    Ok(ControlFlow::Continue(()))
}

fn next_key(map: &Table, key: Option<&[u8]>, next: &mut [u8]) -> Result<bool, KernelError> {
    map::map_next_key(map.fd(), key, next).map_err(|error| map.error("key walk", error))
}

/// In one call where the type has it, else in two.
fn take(map: &Table, key: &[u8], value: &mut [u8]) -> std::io::Result<bool> {
    if map.access.operations.lookup_and_delete {
        return map::map_lookup_and_delete(map.fd(), key, value);
    }
    Ok(map::map_lookup(map.fd(), key, value)? && map::map_delete(map.fd(), key)?)
}

pub const SMALL: usize = size_of::<u128>();

/// Keys of one size. The hash is one that whoever chooses the keys, by the packets they send, can't aim at.
pub enum Seen {
    /// Of up to 16 bytes, filled up with zeros: no memory of their own.
    Small(HashSet<u128>),
    Large(HashSet<Box<[u8]>>),
}

impl Seen {
    pub fn new(key_size: usize) -> Self {
        if key_size <= SMALL { Self::Small(HashSet::new()) } else { Self::Large(HashSet::new()) }
    }

    /// Whether `key` is new.
    pub fn insert(&mut self, key: &[u8]) -> bool {
        match self {
            Self::Small(keys) => {
                let mut bytes = [0; SMALL];
                bytes[..key.len()].copy_from_slice(key);
                keys.insert(u128::from_ne_bytes(bytes))
            }
            Self::Large(keys) => keys.insert(key.into()),
        }
    }
}
