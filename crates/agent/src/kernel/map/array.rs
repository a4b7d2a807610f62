//! ARRAY and PERCPU_ARRAY: keys are `0..max_entries`, entries always exist, reset is zeroing.

use twinprobe_ebpf_common::RawTable;

use super::MetricMap;
use crate::config::AfterRead;
use crate::kernel::sys::{self, BatchCursor, BatchOutcome, KernelError};

pub(super) fn read(map: &MetricMap, after: AfterRead, out: &mut RawTable) -> Result<(), KernelError> {
    // Zeroing starts only when everything has been read, so reading again is harmless until then; a table
    // that is already complete was read before a zeroing that failed.
    let complete = map.max_entries;
    if after == AfterRead::Keep || out.len(map.layout()) != complete {
        *out = RawTable::default();
        if !batched(map, out)? {
            one_by_one(map, out)?;
        }
    }
    if after == AfterRead::Reset {
        zero(map, &out.keys)?;
    }
    Ok(())
}

fn batched(map: &MetricMap, out: &mut RawTable) -> Result<bool, KernelError> {
    let stride = map.value_stride();
    let mut cursor = BatchCursor::new(4);
    out.keys.resize(map.max_entries * 4, 0);
    out.values.resize(map.max_entries * stride, 0);
    let mut done = 0;
    while done < map.max_entries {
        let count = map.batch_len().min(map.max_entries - done);
        let outcome = sys::map_lookup_batch(
            map.fd(),
            &mut cursor,
            &mut out.keys[done * 4..(done + count) * 4],
            &mut out.values[done * stride..(done + count) * stride],
            count,
            false,
        );
        done += outcome.count;
        match outcome.result {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
            Err(error) if done == 0 && sys::is_unsupported(&error) => return Ok(false),
            Err(error) => return Err(map.error("batch lookup", error)),
        }
    }
    out.keys.truncate(done * 4);
    out.values.truncate(done * stride);
    Ok(true)
}

fn one_by_one(map: &MetricMap, out: &mut RawTable) -> Result<(), KernelError> {
    *out = RawTable::default();
    let mut value = vec![0; map.value_stride()];
    for index in 0..map.max_entries as u32 {
        let key = index.to_ne_bytes();
        let found = sys::map_lookup(map.fd(), &key, &mut value);
        if found.map_err(|error| map.error("lookup", error))? {
            out.keys.extend_from_slice(&key);
            out.values.extend_from_slice(&value);
        }
    }
    Ok(())
}

fn zero(map: &MetricMap, keys: &[u8]) -> Result<(), KernelError> {
    let zeros = vec![0; map.batch_len() * map.value_stride()];
    for chunk in keys.chunks(map.batch_len() * 4) {
        let count = chunk.len() / 4;
        let BatchOutcome { result, .. } = sys::map_update_batch(map.fd(), chunk, &zeros, count);
        match result {
            Ok(()) => {}
            Err(error) if sys::is_unsupported(&error) => {
                for key in chunk.chunks(4) {
                    sys::map_update(map.fd(), key, &zeros[..map.value_stride()])
                        .map_err(|error| map.error("update", error))?;
                }
            }
            Err(error) => return Err(map.error("batch update", error)),
        }
    }
    Ok(())
}
