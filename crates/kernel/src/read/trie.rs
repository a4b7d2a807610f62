//! LPM_TRIE, whose keys are prefixes. The cursor of a batch is a key: if that key is deleted during
//! the walk, the walk starts again and returns keys twice.
//!
//! A lookup finds the longest prefix that covers the key. If a program deletes an entry between the
//! step to its key and its lookup, the row has the value of the covering prefix. Only live readings
//! can meet this.

use std::ops::ControlFlow;

use twinprobe_ebpf_common::RawTable;
use twinprobe_ebpf_common::metric::AfterRead;

use crate::read::access::Strategy;
use crate::read::table::{MapTable, ReadResult, Sink};
use crate::read::walk::batch::{self, Batches};
use crate::read::walk::keys::{self, SeenKeys};

pub fn read(map: &MapTable, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
    if map.strategy() == Strategy::Iterative {
        return keys::read(map, after, sink);
    }
    let mut batches = Batches::new(map);
    let mut seen = SeenKeys::new(map.key_size());
    let mut steps = 0;
    let (mut rows, mut next) = (RawTable::default(), RawTable::default());
    let mut more = batches.next(&mut rows, false)?;
    retain_new(map, &mut rows, &mut seen);
    loop {
        // The cursor of the next batch is a key of this batch. So the entries of this batch are
        // deleted only after the next batch was read.
        let mut last = true;
        if more {
            more = batches.next(&mut next, false)?;
            steps += next.len(&map.layout);
            retain_new(map, &mut next, &mut seen);
            last = false;
        }
        let deleted = if after == AfterRead::Reset {
            batch::delete(map, &rows)
        } else {
            Ok(())
        };
        if !rows.is_empty() && sink(&mut rows).is_break() {
            return deleted.map(|()| ControlFlow::Break(()));
        }
        deleted?;
        if last || steps > keys::limit(map) {
            return Ok(ControlFlow::Continue(()));
        }
        std::mem::swap(&mut rows, &mut next);
    }
}

/// Removes the rows whose keys were read before. Their entries stay in the map, because a program
/// has written them again.
fn retain_new(map: &MapTable, rows: &mut RawTable, seen: &mut SeenKeys) {
    let (size, stride) = (map.key_size(), map.value_stride());
    let mut kept = 0;
    for row in 0..rows.len(&map.layout) {
        if !seen.insert(&rows.keys[row * size..(row + 1) * size]) {
            continue;
        }
        if kept != row {
            rows.keys
                .copy_within(row * size..(row + 1) * size, kept * size);
            rows.values
                .copy_within(row * stride..(row + 1) * stride, kept * stride);
        }
        kept += 1;
    }
    rows.truncate(kept, &map.layout);
}
