//! The content that a metric names: a map of any type, or a variable.

use std::ops::ControlFlow;
use std::sync::Arc;

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{MapFamily, RawTable, TableLayout};

use crate::read::nested;
use crate::read::table::{MapTable, ReadResult, Sink, collect};
use crate::read::variable::Variable;
use crate::sys::call::KernelError;

/// The content that a metric names.
#[derive(Debug)]
pub enum MetricMap {
    Table(MapTable),
    Variable(Variable),
}

impl MetricMap {
    pub const fn layout(&self) -> &Arc<TableLayout> {
        match self {
            Self::Table(table) => &table.layout,
            Self::Variable(variable) => &variable.layout,
        }
    }

    /// Hands on every entry, in chunks of about [`CHUNK_BYTES`]; an entry of a map of maps is never
    /// divided. With [`AfterRead::Reset`], and for a QUEUE or STACK always, the rows have been
    /// taken out of the map, and they are lost unless `sink` keeps them.
    pub fn read_chunks(&self, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
        match self {
            Self::Table(table) => table.read_chunks(after, sink),
            Self::Variable(variable) => Ok(variable.read(after, sink)),
        }
    }

    /// Returns every entry. After an error, rows that were removed from the map are lost.
    pub fn read(&self, after: AfterRead) -> Result<RawTable, KernelError> {
        collect(|sink| self.read_chunks(after, sink))
    }

    /// Resets the map and drops its content.
    pub fn empty(&self) -> Result<(), KernelError> {
        self.read_chunks(AfterRead::Reset, &mut |_| ControlFlow::Continue(()))
            .map(drop)
    }
}

impl MapTable {
    /// Hands on every entry, in chunks of about [`CHUNK_BYTES`]; an entry of a map of maps is never
    /// divided.
    pub fn read_chunks(&self, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
        match self.layout.kind.family() {
            MapFamily::Nested => nested::read(self, after, sink),
            _ => self.read_flat(after, sink),
        }
    }
}
