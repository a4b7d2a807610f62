//! A map, and everything that its reading needs: its layout, its size, and the strategy.
//!
//! A new map type needs a variant of [`MapKind`] (number, name, family). If such a map needs more
//! than a key and a value for its creation, it needs a trial in `trial::maps`. If it can't be read
//! like one of the existing families, it needs a variant of [`MapFamily`] and a file in this
//! folder. `access` chooses the strategy once, when the daemon starts, from the operations that the
//! kernel has. [`MapKind`]: twinprobe_ebpf_common::MapKind [`MapFamily`]:
//! twinprobe_ebpf_common::MapFamily

#[cfg(test)]
pub mod tests;

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use twinprobe_ebpf_common::{RawTable, TableLayout};

use crate::read::access::{MapAccess, Strategy};
use crate::sys::call::KernelError;
use crate::sys::map;

/// The size of one batch and of one chunk, in bytes: large enough that the system call's cost
/// vanishes, small enough for the cache.
pub const CHUNK_BYTES: usize = 256 << 10;

/// The receiver of rows. `Break` ends the reading. The receiver may take the rows and leave other
/// rows in their place, which the next reading overwrites.
pub type Sink<'a> = dyn FnMut(&mut RawTable) -> ControlFlow<()> + 'a;
pub type ReadResult = Result<ControlFlow<()>, KernelError>;

/// Returns all rows that `read` hands on.
pub fn collect(read: impl FnOnce(&mut Sink<'_>) -> ReadResult) -> Result<RawTable, KernelError> {
    let mut rows = RawTable::default();
    let mut append = |chunk: &mut RawTable| {
        rows.append(chunk);
        ControlFlow::Continue(())
    };
    read(&mut append).map(|_| rows)
}

/// A map, and everything that its reading needs.
#[derive(Debug)]
pub struct MapTable {
    pub fd: OwnedFd,
    pub name: String,
    pub layout: Arc<TableLayout>,
    pub max_entries: usize,
    pub access: MapAccess,
    /// The access to the inner maps, for maps of maps.
    pub inner: MapAccess,
    /// For maps of maps: the probe's own maps that may be inner maps, by id.
    pub members: Vec<(u32, OwnedFd)>,
    pub chunk_bytes: usize,
}

impl MapTable {
    /// Makes a table. `access` is for maps of this kind, `inner` for the inner maps of a map of
    /// maps. A map that lacks operations of its type is read entry by entry.
    pub fn new(
        fd: OwnedFd,
        name: &str,
        layout: Arc<TableLayout>,
        max_entries: u32,
        access: [MapAccess; 2],
    ) -> Self {
        let [access, inner] = access;
        let access = access.confirmed(fd.as_fd());
        let (name, max_entries) = (name.to_owned(), max_entries as usize);
        let members = Vec::new();
        Self {
            fd,
            name,
            layout,
            max_entries,
            access,
            inner,
            members,
            chunk_bytes: CHUNK_BYTES,
        }
    }

    /// Adds the probe's own maps that may be in this map of maps: the kernel opens other maps by
    /// their ids only for processes with CAP_SYS_ADMIN.
    pub fn with_members(self, members: Vec<OwnedFd>) -> std::io::Result<Self> {
        let members = members
            .into_iter()
            .map(|fd| Ok((map::map_id(fd.as_fd())?, fd)));
        Ok(Self {
            members: members.collect::<std::io::Result<_>>()?,
            ..self
        })
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

    /// Returns the number of entries of a batch.
    pub fn batch_len(&self) -> usize {
        let entry = self.key_size() + self.value_stride();
        (self.chunk_bytes / entry.max(1)).clamp(1, self.max_entries.max(1))
    }
}
