//! The reading of maps whose keys come and go, entry by entry.

use std::collections::HashSet;
use std::ops::ControlFlow;

use twinprobe_ebpf_common::RawTable;
use twinprobe_ebpf_common::metric::AfterRead;

use crate::read::table::{MapTable, ReadResult, Sink};
use crate::sys::call::KernelError;
use crate::sys::map;

pub fn read(map: &MapTable, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
    let mut rows = RawTable::default();
    let result = walk(map, after, &mut rows, sink);
    // The rest of the rows is handed on even after an error, because a reset has taken them out of
    // the map.
    let flow = if rows.is_empty() {
        ControlFlow::Continue(())
    } else {
        sink(&mut rows)
    };
    result.map(|walked| if walked.is_break() { walked } else { flow })
}

/// Returns the number of steps after which a walk ends, even if programs make it start again and
/// again: twice the number for a full map.
pub fn limit(map: &MapTable) -> usize {
    map.max_entries.saturating_mul(2)
}

/// Reads every key once. If the next key is deleted during the walk, the walk starts again and
/// skips the keys that it has read before.
fn walk(map: &MapTable, after: AfterRead, rows: &mut RawTable, sink: &mut Sink<'_>) -> ReadResult {
    let mut seen = SeenKeys::new(map.key_size());
    let mut value = vec![0; map.value_stride()];
    let (mut key, mut next) = (vec![0; map.key_size()], vec![0; map.key_size()]);
    let mut more = next_key(map, None, &mut key)?;
    for _ in 0..=limit(map) {
        if !more {
            break;
        }
        // The next key is looked up before this key is deleted, or the walk would start again for
        // every entry.
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

fn next_key(map: &MapTable, key: Option<&[u8]>, next: &mut [u8]) -> Result<bool, KernelError> {
    map::map_next_key(map.fd(), key, next).map_err(|error| map.error("key walk", error))
}

/// Reads and deletes an entry: in one call if the map type has that operation, or else in two
/// calls. Returns false if the entry does not exist.
fn take(map: &MapTable, key: &[u8], value: &mut [u8]) -> std::io::Result<bool> {
    if map.access.operations.lookup_and_delete {
        return map::map_lookup_and_delete(map.fd(), key, value);
    }
    Ok(map::map_lookup(map.fd(), key, value)? && map::map_delete(map.fd(), key)?)
}

pub const SMALL: usize = size_of::<u128>();

/// A set of keys of one size. Keys come from packets, so the hash must be one whose collisions
/// senders can't produce.
pub enum SeenKeys {
    /// Keys of up to 16 bytes, padded with zeros, which need no allocation each.
    Small(HashSet<u128>),
    Large(HashSet<Box<[u8]>>),
}

impl SeenKeys {
    pub fn new(key_size: usize) -> Self {
        if key_size <= SMALL {
            Self::Small(HashSet::new())
        } else {
            Self::Large(HashSet::new())
        }
    }

    /// Adds `key`, and tells whether it is new.
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
