//! HASH, LRU_HASH, PERCPU_HASH: keys come and go.

use std::collections::HashSet;

use twinprobe_ebpf_common::RawTable;

use super::MetricMap;
use crate::config::AfterRead;
use crate::kernel::sys::{self, BatchCursor, KernelError};

pub(super) fn read(map: &MetricMap, after: AfterRead, out: &mut RawTable) -> Result<(), KernelError> {
    if after == AfterRead::Keep {
        *out = RawTable::default();
    }
    if batched(map, after, out)? { Ok(()) } else { one_by_one(map, after, out) }
}

/// `Ok(false)`: this kernel has no batch operation for the map, nothing was read.
fn batched(map: &MetricMap, after: AfterRead, out: &mut RawTable) -> Result<bool, KernelError> {
    let (key_size, stride) = (map.key_size(), map.value_stride());
    let mut room = map.batch_len();
    let mut cursor = BatchCursor::new(key_size);
    let mut first = true;
    loop {
        let (keys, values) = (out.keys.len(), out.values.len());
        out.keys.resize(keys + room * key_size, 0);
        out.values.resize(values + room * stride, 0);
        let outcome = sys::map_lookup_batch(
            map.fd(),
            &mut cursor,
            &mut out.keys[keys..],
            &mut out.values[values..],
            room,
            after == AfterRead::Reset,
        );
        let errno = outcome.result.as_ref().err().map(|error| error.raw_os_error().unwrap_or(0));
        // On ENOSPC one bucket did not fit and the count is what would have been moved: nothing.
        let moved = if errno == Some(libc::ENOSPC) { 0 } else { outcome.count };
        out.keys.truncate(keys + moved * key_size);
        out.values.truncate(values + moved * stride);
        match outcome.result {
            Ok(()) => {}
            // The last batch ends with ENOENT and a count.
            Err(_) if errno == Some(libc::ENOENT) => return Ok(true),
            Err(_) if errno == Some(libc::ENOSPC) => room *= 2,
            Err(error) if first && sys::is_unsupported(&error) => return Ok(false),
            Err(error) => return Err(map.error("batch lookup", error)),
        }
        first = false;
    }
}

/// Keys first, then values: deleting while walking would restart the walk.
fn one_by_one(map: &MetricMap, after: AfterRead, out: &mut RawTable) -> Result<(), KernelError> {
    let mut value = vec![0; map.value_stride()];
    for key in keys(map)? {
        let found = match after {
            AfterRead::Keep => sys::map_lookup(map.fd(), &key, &mut value),
            AfterRead::Reset => take(map, &key, &mut value),
        };
        if found.map_err(|error| map.error("lookup", error))? {
            out.keys.extend_from_slice(&key);
            out.values.extend_from_slice(&value);
        }
    }
    Ok(())
}

/// Lookup and delete in one call, or in two where hashes do not have it (before Linux 5.14).
fn take(map: &MetricMap, key: &[u8], value: &mut [u8]) -> std::io::Result<bool> {
    match sys::map_lookup_and_delete(map.fd(), key, value) {
        Err(error) if sys::is_unsupported(&error) => {
            Ok(sys::map_lookup(map.fd(), key, value)? && sys::map_delete(map.fd(), key)?)
        }
        result => result,
    }
}

/// Every key once. A key that is deleted under us makes the walk start again: what was seen is skipped,
/// and the walk ends when it has taken more steps than a full map has entries, twice.
fn keys(map: &MetricMap) -> Result<Vec<Vec<u8>>, KernelError> {
    let mut seen = HashSet::new();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut next = vec![0; map.key_size()];
    let mut current: Option<Vec<u8>> = None;
    for _ in 0..=map.max_entries.saturating_mul(2) {
        let found = sys::map_next_key(map.fd(), current.as_deref(), &mut next);
        if !found.map_err(|error| map.error("key walk", error))? {
            break;
        }
        if seen.insert(next.clone()) {
            keys.push(next.clone());
        }
        current = Some(next.clone());
    }
    Ok(keys)
}
