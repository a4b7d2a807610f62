//! The walk over a map in batches.

use twinprobe_ebpf_common::RawTable;

use crate::read::table::MapTable;
use crate::sys::batch::{self, BatchCursor};
use crate::sys::call::KernelError;

pub struct Batches<'a> {
    map: &'a MapTable,
    cursor: BatchCursor,
    /// The number of entries that one call may return.
    pub room: usize,
}

impl<'a> Batches<'a> {
    pub fn new(map: &'a MapTable) -> Self {
        Self {
            map,
            cursor: BatchCursor::new(map.key_size()),
            room: map.batch_len(),
        }
    }

    /// Replaces `rows` by the next entries, and deletes them from the map if `delete`. Returns
    /// false if no entries follow them.
    pub fn next(&mut self, rows: &mut RawTable, delete: bool) -> Result<bool, KernelError> {
        let (map, layout) = (self.map, &self.map.layout);
        loop {
            rows.keys.resize(self.room * map.key_size(), 0);
            rows.values.resize(self.room * map.value_stride(), 0);
            let (keys, values) = (&mut rows.keys, &mut rows.values);
            let outcome = batch::map_lookup_batch(
                map.fd(),
                &mut self.cursor,
                keys,
                values,
                self.room,
                delete,
            );
            rows.truncate(outcome.count, layout);
            match outcome.result {
                Ok(()) => return Ok(true),
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENOENT) => return Ok(false),
                    Some(libc::EINTR) if outcome.count > 0 => return Ok(true),
                    Some(libc::EINTR) => {}
                    // The next bucket has more entries than there is room for. No bucket has more
                    // than the map, so doubling the room ends.
                    Some(libc::ENOSPC) if self.room <= map.max_entries => self.room *= 2,
                    _ => return Err(map.error("batch lookup", error)),
                },
            }
        }
    }
}

pub fn delete(map: &MapTable, rows: &RawTable) -> Result<(), KernelError> {
    let len = rows.len(&map.layout);
    let mut done = 0;
    while done < len {
        let outcome =
            batch::map_delete_batch(map.fd(), &rows.keys[done * map.key_size()..], len - done);
        done += outcome.count;
        match outcome.result {
            Ok(()) => break,
            // A program has deleted this entry since it was read.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => done += 1,
            Err(error) => return Err(map.error("batch delete", error)),
        }
    }
    Ok(())
}
