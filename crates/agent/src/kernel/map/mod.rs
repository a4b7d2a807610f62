//! Reading maps: one file for each family of map types, each with the fastest way the kernel offers.

mod array;
mod fifo;
mod hash;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use twinprobe_ebpf_common::{MapFamily, RawTable, TableLayout};

use super::sys::KernelError;
use crate::config::AfterRead;

/// Bytes of one batch: large enough that the system call's cost vanishes, small enough for the cache.
const BATCH_BYTES: usize = 256 << 10;

/// A map that a metric names.
#[derive(Debug)]
pub struct MetricMap {
    fd: OwnedFd,
    name: String,
    layout: Arc<TableLayout>,
    max_entries: usize,
}

impl MetricMap {
    pub fn new(fd: OwnedFd, name: &str, layout: Arc<TableLayout>, max_entries: u32) -> Self {
        Self { fd, name: name.to_owned(), layout, max_entries: max_entries as usize }
    }

    pub const fn layout(&self) -> &Arc<TableLayout> {
        &self.layout
    }

    /// Reads every entry into `out`. After an error `out` holds what was taken out of the map so far, and
    /// calling again with the same `out` completes it: nothing is lost or doubled.
    pub fn read(&self, after: AfterRead, out: &mut RawTable) -> Result<(), KernelError> {
        match self.layout.kind.family() {
            MapFamily::Hash => hash::read(self, after, out),
            MapFamily::Array => array::read(self, after, out),
            MapFamily::Fifo => fifo::read(self, out),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn key_size(&self) -> usize {
        self.layout.key.size
    }

    fn value_stride(&self) -> usize {
        self.layout.value_stride()
    }

    fn error(&self, call: &'static str, source: std::io::Error) -> KernelError {
        KernelError::new(call, format!("map {}", self.name), source)
    }

    /// Entries per batch.
    fn batch_len(&self) -> usize {
        let entry = self.key_size() + self.value_stride();
        (BATCH_BYTES / entry.max(1)).clamp(16, self.max_entries.max(16))
    }
}
