//! ARRAY and PERCPU_ARRAY. Their keys are `0..max_entries`, and the entries always exist. A reset
//! sets them to zero.

use std::ops::ControlFlow;

use twinprobe_ebpf_common::RawTable;
use twinprobe_ebpf_common::metric::AfterRead;

use crate::read::access::Strategy;
use crate::read::table::{MapTable, ReadResult, Sink};
use crate::read::walk::batch::Batches;
use crate::sys::call::KernelError;
use crate::sys::{batch, map};

pub fn read(map: &MapTable, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
    let in_batches = map.strategy() != Strategy::Iterative;
    let mut batches = Batches::new(map);
    let mut rows = RawTable::default();
    let mut at = 0;
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
            AfterRead::Reset => zero(map, &rows),
        };
        if !rows.is_empty() && sink(&mut rows).is_break() {
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

pub fn zero(map: &MapTable, rows: &RawTable) -> Result<(), KernelError> {
    let zeros = vec![0; rows.values.len()];
    if map.strategy() != Strategy::Iterative {
        let outcome = batch::map_update_batch(map.fd(), &rows.keys, &zeros, rows.len(&map.layout));
        return outcome
            .result
            .map_err(|error| map.error("batch update", error));
    }
    let update =
        |(key, _): (&[u8], _)| map::map_update(map.fd(), key, &zeros[..map.value_stride()]);
    rows.entries(&map.layout)
        .try_for_each(update)
        .map_err(|error| map.error("update", error))
}

/// Reads the entries of `range` one by one. An array of maps has no entry for an empty slot.
fn one_by_one(
    map: &MapTable,
    range: std::ops::Range<usize>,
    rows: &mut RawTable,
) -> Result<(), KernelError> {
    rows.clear();
    let mut value = vec![0; map.value_stride()];
    for index in range {
        let key = (index as u32).to_ne_bytes();
        let found = map::map_lookup(map.fd(), &key, &mut value);
        if found.map_err(|error| map.error("lookup", error))? {
            rows.keys.extend_from_slice(&key);
            rows.values.extend_from_slice(&value);
        }
    }
    Ok(())
}
