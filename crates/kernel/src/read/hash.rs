//! HASH, LRU_HASH and their PERCPU kinds, whose keys come and go.

use std::ops::ControlFlow;

use twinprobe_ebpf_common::RawTable;
use twinprobe_ebpf_common::metric::AfterRead;

use crate::read::access::Strategy;
use crate::read::table::{MapTable, ReadResult, Sink};
use crate::read::walk::batch::{self, Batches};
use crate::read::walk::keys;

pub fn read(map: &MapTable, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
    if map.strategy() == Strategy::Iterative {
        return keys::read(map, after, sink);
    }
    let reset = after == AfterRead::Reset;
    let at_once = reset && map.strategy() == Strategy::LookupAndDeleteBatch;
    let mut batches = Batches::new(map);
    let mut rows = RawTable::default();
    loop {
        let more = batches.next(&mut rows, at_once)?;
        // The cursor is a bucket, so that deleting entries of the buckets before it does not
        // disturb the walk.
        let deleted = if reset && !at_once {
            batch::delete(map, &rows)
        } else {
            Ok(())
        };
        if !rows.is_empty() && sink(&mut rows).is_break() {
            return deleted.map(|()| ControlFlow::Break(()));
        }
        deleted?;
        if !more {
            return Ok(ControlFlow::Continue(()));
        }
    }
}
