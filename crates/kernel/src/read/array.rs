//! ARRAY and PERCPU_ARRAY: keys are `0..max_entries`, entries always exist, reset is zeroing.

use std::ops::ControlFlow;

use twinprobe_ebpf_common::RawTable;
use twinprobe_ebpf_common::metric::AfterRead;

use crate::read::access::Strategy;
use crate::read::batch::{self, Batches};
use crate::read::table::{ReadResult, Sink, Table};
use crate::sys::call::KernelError;
use crate::sys::map;

/// Begins with entry `first`.
pub fn read(map: &Table, after: AfterRead, first: usize, sink: &mut Sink<'_>) -> ReadResult {
    let in_batches = map.strategy() != Strategy::Iterative;
    let mut batches = match first.checked_sub(1) {
        Some(last) => Batches::behind(map, &key(last)),
        None => Batches::new(map),
    };
    let mut rows = RawTable::default();
    let mut at = first;
    while at < map.max_entries {
        let end = map.max_entries.min(at + map.batch_len());
        let more = if in_batches {
            batches.next(&mut rows, false)?
        } else {
            one_by_one(map, at..end, &mut rows)?;
            true
        };
        let zeroed = match after {
            AfterRead::Keep => Ok(()),
            AfterRead::Reset if in_batches => batch::zero(map, &mut rows),
            AfterRead::Reset => zero_one_by_one(map, &mut rows),
        };
        if !rows.is_empty() && sink(&rows).is_break() {
            return zeroed.map(|()| ControlFlow::Break(()));
        }
        zeroed?;
        if !more {
            break;
        }
        at = end;
    }
    Ok(ControlFlow::Continue(()))
}

fn key(index: usize) -> [u8; 4] {
    (index as u32).to_ne_bytes()
}

/// An array of maps has no entry where its slot is empty.
fn one_by_one(map: &Table, range: std::ops::Range<usize>, rows: &mut RawTable) -> Result<(), KernelError> {
    rows.clear();
    let mut value = vec![0; map.value_stride()];
    for index in range {
        let key = key(index);
        let found = map::map_lookup(map.fd(), &key, &mut value);
        if found.map_err(|error| map.error("lookup", error))? {
            rows.keys.extend_from_slice(&key);
            rows.values.extend_from_slice(&value);
        }
    }
    Ok(())
}

/// As [`batch::zero`].
fn zero_one_by_one(map: &Table, rows: &mut RawTable) -> Result<(), KernelError> {
    let zeros = vec![0; map.value_stride()];
    for row in 0..rows.len(&map.layout) {
        if let Err(error) = map::map_update(map.fd(), &rows.keys[row * 4..][..4], &zeros) {
            rows.truncate(row, &map.layout);
            return Err(map.error("update", error));
        }
    }
    Ok(())
}
