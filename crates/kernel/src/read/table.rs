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
use crate::read::journal::journal::{self, Journal};
use crate::read::variable::Variable;
use crate::read::{array, hash, nested, trie};
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

/// How far a reading that failed has come: the next one goes on from there. Of a new reading, the default.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Rows that were handed on.
    pub rows: usize,
    /// What was taken out of the inner map that comes next, and not handed on yet.
    pub partial: RawTable,
}

impl MetricMap {
    /// Hands on every entry, in chunks of about [`CHUNK_BYTES`]; an entry of a map of maps is never divided.
    /// Rows that were handed on have been taken out of the map if `after` says so. After an error, or if
    /// `sink` breaks off, calling again with the same `taken` gives the rest: nothing is lost or doubled.
    pub fn read_chunks(&self, after: AfterRead, taken: &mut Taken, sink: &mut Sink<'_>) -> ReadResult {
        match self {
            Self::Table(table) => table.read_chunks(after, taken, sink),
            Self::Variable(variable) => Ok(variable.read(after, sink)),
        }
    }

    /// Pops all values of a QUEUE or STACK at rest into `journal`, from where no crash of this process takes them. After
    /// an error calling again goes on: nothing is lost or doubled.
    pub fn drain_into(&self, journal: &mut Journal) -> Result<(), KernelError> {
        match self {
            Self::Table(table) if table.layout.kind.family() == MapFamily::Fifo => {
                journal::drain(table, journal)
            }
            Self::Table(table) => Err(table.error("drain", std::io::ErrorKind::Unsupported.into())),
            Self::Variable(variable) => {
                let object = variable.layout().kind.name();
                Err(KernelError::new("drain", object, std::io::ErrorKind::Unsupported.into()))
            }
        }
    }

    /// Reads every entry into `out`. After an error `out` holds what was taken out of the map so far, and
    /// calling again with the same `out` and `taken` completes it.
    pub fn read(&self, after: AfterRead, taken: &mut Taken, out: &mut RawTable) -> Result<(), KernelError> {
        if after == AfterRead::Keep {
            // Nothing was taken: start again, for one instant as far as that can be had.
            (*out, *taken) = Default::default();
        }
        let mut append = |chunk: &RawTable| {
            out.append(chunk);
            ControlFlow::Continue(())
        };
        self.read_chunks(after, taken, &mut append).map(drop)
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

    pub fn read_chunks(&self, after: AfterRead, taken: &mut Taken, sink: &mut Sink<'_>) -> ReadResult {
        if after == AfterRead::Keep {
            *taken = Taken::default();
        }
        let Taken { rows: before, partial } = taken;
        let mut rows = *before;
        let mut count = |chunk: &RawTable| {
            rows += chunk.len(&self.layout);
            sink(chunk)
        };
        let result = match self.layout.kind.family() {
            MapFamily::Hash => hash::read(self, after, &mut count),
            MapFamily::Array => array::read(self, after, *before, &mut count),
            MapFamily::Trie => trie::read(self, after, &mut count),
            MapFamily::Fifo => fifo::read(self, &mut count),
            MapFamily::Nested => nested::read(self, after, *before, partial, &mut count),
            // A variable is no table: the loader makes none of it.
            MapFamily::Global => Ok(ControlFlow::Continue(())),
        };
        *before = rows;
        result
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
