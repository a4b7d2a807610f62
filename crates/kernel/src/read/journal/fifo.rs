//! QUEUE and STACK. A reading pops their values, so every reading is also a reset.

use std::ops::ControlFlow;

use twinprobe_ebpf_common::RawTable;

use crate::read::table::{MapTable, ReadResult, Sink};
use crate::sys::map;

/// Pops at most `max_entries` values: a live queue may be filled as fast as it is emptied.
pub fn read(map: &MapTable, sink: &mut Sink<'_>) -> ReadResult {
    let mut rows = RawTable::default();
    let mut value = vec![0; map.value_stride()];
    for _ in 0..map.max_entries {
        match map::map_lookup_and_delete(map.fd(), &[], &mut value) {
            Ok(true) => rows.values.extend_from_slice(&value),
            Ok(false) => break,
            Err(error) => {
                // The popped values are in no map any more, so the sink gets them before the error.
                let _ = hand_on(&mut rows, sink);
                return Err(map.error("pop", error));
            }
        }
        if rows.values.len() >= map.chunk_bytes && hand_on(&mut rows, sink).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(hand_on(&mut rows, sink))
}

fn hand_on(rows: &mut RawTable, sink: &mut Sink<'_>) -> ControlFlow<()> {
    let flow = if rows.is_empty() {
        ControlFlow::Continue(())
    } else {
        sink(rows)
    };
    rows.clear();
    flow
}
