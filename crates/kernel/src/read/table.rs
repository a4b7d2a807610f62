//! Reading maps: one file for each family of map types, each with the fastest way the kernel offers.
//!
//! To add a map type, add a variant to [`MapKind`] (number, name, family), try it in [`probe`] if it needs
//! more than a key and a value to be made, and, if it can't be read like one of the families there are, add a
//! variant to [`MapFamily`] and a file here. What is done with the operations the kernel has is decided in
//! [`strategy`], once, when the daemon starts.
//!
//! [`MapKind`]: twinprobe_ebpf_common::MapKind

#[cfg(test)]
pub mod tests;

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{MapFamily, RawTable, TableLayout};

use crate::read::access::{Access, Strategy};
use crate::read::journal::fifo;
use crate::read::variable::Variable;
use crate::read::{array, batch, hash, nested, trie};
use crate::sys::call::KernelError;
use crate::sys::map;

/// Bytes of one batch and of one chunk: large enough that the system call's cost vanishes, small enough for
/// the cache.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Takes rows; `Break` ends the reading.
pub type Sink<'a> = dyn FnMut(&RawTable) -> ControlFlow<()> + 'a;
pub type ReadResult = Result<ControlFlow<()>, KernelError>;

/// What a metric names.
#[derive(Debug)]
pub enum MetricMap {
    Table(Table),
    Variable(Variable),
}

/// A map as it is read.
#[derive(Debug)]
pub struct Table {
    pub fd: OwnedFd,
    pub name: String,
    pub layout: Arc<TableLayout>,
    pub max_entries: usize,
    pub access: Access,
    /// For maps of maps: how the maps in it are read.
    pub inner: Access,
    /// For maps of maps: the probe's own maps that may be in it, by id.
    pub members: Vec<(u32, OwnedFd)>,
    pub chunk_bytes: usize,
}

impl MetricMap {
    pub const fn layout(&self) -> &Arc<TableLayout> {
        match self {
            Self::Table(table) => &table.layout,
            Self::Variable(variable) => variable.layout(),
        }
    }

    /// Hands on every entry, in chunks of about [`CHUNK_BYTES`]; an entry of a map of maps is never divided.
    /// Rows that were handed on have been taken out of the map if `after` says so, and those of a QUEUE or STACK always
    /// have: they are lost unless `sink` keeps them.
    pub fn read_chunks(&self, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
        match self {
            Self::Table(table) => table.read_chunks(after, sink),
            Self::Variable(variable) => Ok(variable.read(after, sink)),
        }
    }

    /// Returns every entry. After an error rows that were taken out of the map are lost.
    pub fn read(&self, after: AfterRead) -> Result<RawTable, KernelError> {
        let mut rows = RawTable::default();
        let mut append = |chunk: &RawTable| {
            rows.append(chunk);
            ControlFlow::Continue(())
        };
        self.read_chunks(after, &mut append).map(|_| rows)
    }

    /// Forgets the content.
    pub fn empty(&self) -> Result<(), KernelError> {
        self.read_chunks(AfterRead::Reset, &mut |_| ControlFlow::Continue(())).map(drop)
    }
}

impl Table {
    /// `access` is for maps of this kind, `inner` for those in a map of maps. A map that lacks what its type
    /// has is read one by one.
    pub fn new(
        fd: OwnedFd,
        name: &str,
        layout: Arc<TableLayout>,
        max_entries: u32,
        access: [Access; 2],
    ) -> Self {
        let [access, inner] = access;
        let access = access.confirmed(fd.as_fd());
        let (name, max_entries) = (name.to_owned(), max_entries as usize);
        let members = Vec::new();
        Self { fd, name, layout, max_entries, access, inner, members, chunk_bytes: CHUNK_BYTES }
    }

    /// Adds the probe's own maps that may be in this map of maps: the kernel opens other maps by their ids only for
    /// those who have CAP_SYS_ADMIN.
    pub fn with_members(self, members: Vec<OwnedFd>) -> std::io::Result<Self> {
        let members = members.into_iter().map(|fd| Ok((map::map_id(fd.as_fd())?, fd)));
        Ok(Self { members: members.collect::<std::io::Result<_>>()?, ..self })
    }

    pub fn read_chunks(&self, after: AfterRead, sink: &mut Sink<'_>) -> ReadResult {
        match self.layout.kind.family() {
            MapFamily::Hash => hash::read(self, after, sink),
            MapFamily::Array => array::read(self, after, sink),
            MapFamily::Trie => trie::read(self, after, sink),
            MapFamily::Fifo => fifo::read(self, sink),
            MapFamily::Nested => nested::read(self, after, sink),
            // A variable is no table: the loader makes none of it.
            MapFamily::Global => Ok(ControlFlow::Continue(())),
        }
    }

    /// Resets the entries of `rows`, whatever has become of them.
    pub fn reset(&self, rows: &RawTable) -> Result<(), KernelError> {
        if self.layout.kind.family() == MapFamily::Array {
            array::zero(self, rows)
        } else if self.strategy() == Strategy::Iterative {
            let delete = |(key, _): (&[u8], _)| map::map_delete(self.fd(), key).map(drop);
            rows.entries(&self.layout).try_for_each(delete).map_err(|error| self.error("delete", error))
        } else {
            batch::delete(self, rows)
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub const fn strategy(&self) -> Strategy {
        self.access.strategy
    }

    pub fn key_size(&self) -> usize {
        self.layout.key.size
    }

    pub fn value_stride(&self) -> usize {
        self.layout.value_stride()
    }

    pub fn error(&self, call: &'static str, source: std::io::Error) -> KernelError {
        KernelError::new(call, format!("map {}", self.name), source)
    }

    /// Entries per batch.
    pub fn batch_len(&self) -> usize {
        let entry = self.key_size() + self.value_stride();
        (self.chunk_bytes / entry.max(1)).clamp(1, self.max_entries.max(1))
    }
}
