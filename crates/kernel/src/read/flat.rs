//! The reading and the reset of all maps except maps of maps. Each family of maps has its own file.

use std::ops::ControlFlow;

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{MapFamily, RawTable};

use crate::read::access::Strategy;
use crate::read::journal::fifo;
use crate::read::table::{MapTable, ReadResult, Sink};
use crate::read::walk::batch;
use crate::read::{array, hash, trie};
use crate::sys::call::KernelError;
use crate::sys::map;

impl MapTable {
    /// Hands on every entry, as [`MapTable::read_chunks`] does.
    pub fn read_flat(&self, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
        match self.layout.kind.family() {
            MapFamily::Hash => hash::read(self, after, sink),
            MapFamily::Array => array::read(self, after, sink),
            MapFamily::Trie => trie::read(self, after, sink),
            MapFamily::Fifo => fifo::read(self, sink),
            // The loader makes no table of a variable, and the inner maps of a map of maps are not
            // maps of maps.
            MapFamily::Global | MapFamily::Nested => Ok(ControlFlow::Continue(())),
        }
    }

    /// Resets the entries of `rows`, even if they have changed or disappeared since they were read.
    pub fn reset(&self, rows: &RawTable) -> Result<(), KernelError> {
        if self.layout.kind.family() == MapFamily::Array {
            array::zero(self, rows)
        } else if self.strategy() == Strategy::Iterative {
            let delete = |(key, _): (&[u8], _)| map::map_delete(self.fd(), key).map(drop);
            rows.entries(&self.layout)
                .try_for_each(delete)
                .map_err(|error| self.error("delete", error))
        } else {
            batch::delete(self, rows)
        }
    }
}
