//! Maps of events. Records are read in place, in memory that this process shares with the kernel.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use twinprobe_ebpf_common::{EventKind, Layout};

use crate::read::events::perf::{self, PerfBuffers};
use crate::read::events::record::{EventRecord, ReadingEnd};
use crate::read::events::ringbuf::RingBuffer;
use crate::read::events::waiter::Waiter;
use crate::sys::call::KernelError;
use crate::sys::cpus;

/// The map of an event metric, which both twins write to.
#[derive(Debug)]
pub struct EventMap {
    fd: Arc<OwnedFd>,
    name: String,
    kind: EventKind,
    max_entries: u32,
    /// The layout of an event's bytes; `None` if the configuration names no type.
    pub layout: Option<Layout>,
}

/// The only reader of an event map. A late reading loses no event as long as the rings have room.
#[derive(Debug)]
pub enum EventReader {
    Ringbuf(RingBuffer),
    Perf(PerfBuffers),
}

impl EventMap {
    pub fn new(
        fd: OwnedFd,
        name: &str,
        kind: EventKind,
        max_entries: u32,
        layout: Option<Layout>,
    ) -> Self {
        Self {
            fd: Arc::new(fd),
            name: name.to_owned(),
            kind,
            max_entries,
            layout,
        }
    }

    /// Maps the rings into memory. A perf event array takes events only after this call. Call this
    /// once for each map.
    pub fn open(&self) -> Result<EventReader, KernelError> {
        match self.kind {
            EventKind::Ringbuf => {
                RingBuffer::open(&self.fd, self.max_entries).map(EventReader::Ringbuf)
            }
            EventKind::PerfEventArray => {
                PerfBuffers::open(&self.fd, self.max_entries).map(EventReader::Perf)
            }
        }
        .map_err(|source| KernelError::new("mapping", format!("map {}", self.name), source))
    }
}

impl EventReader {
    /// Maps the memory again after [`EventReader::unmap`].
    pub fn map(&mut self) -> io::Result<()> {
        match self {
            Self::Ringbuf(ring) => ring.map(),
            Self::Perf(_) => Ok(()),
        }
    }

    /// Unmaps the memory that only a reading needs. Until it is mapped again, no events are read. A
    /// perf event array takes events only while its rings are mapped.
    pub fn unmap(&mut self) {
        if let Self::Ringbuf(ring) = self {
            ring.unmap();
        }
    }

    /// Returns a waiter for events. Call this in a runtime.
    pub fn waiter(&self) -> io::Result<Waiter> {
        match self {
            Self::Ringbuf(ring) => Waiter::new([Arc::clone(&ring.fd)]),
            Self::Perf(buffers) => Waiter::new(buffers.fds().map(Arc::clone)),
        }
    }

    /// Tells whether the map can get more rings while it is read.
    pub const fn grows(&self) -> bool {
        matches!(self, Self::Perf(_))
    }

    /// Makes rings for CPUs that have come online, and adds these rings to `waiter`.
    pub fn follow_cpus(&mut self, waiter: &mut Waiter) -> io::Result<()> {
        if let Self::Perf(buffers) = self
            && buffers.follow(&cpus::online_cpus()?)?
        {
            waiter.wait_for(buffers.fds().map(Arc::clone))?;
        }
        Ok(())
    }

    /// Hands on events, up to about `limit` bytes of each ring. The next event wakes waiters only
    /// after [`ReadingEnd::Drained`].
    pub fn read(&mut self, limit: usize, sink: impl FnMut(EventRecord<'_>)) -> ReadingEnd {
        match self {
            Self::Ringbuf(ring) => ring.read(limit, sink),
            Self::Perf(buffers) => buffers.read(limit, sink),
        }
    }

    /// Returns the number of bytes that fit into a ring. Events are lost once the ring is full.
    pub const fn room(&self) -> u64 {
        match self {
            Self::Ringbuf(ring) => ring.size,
            Self::Perf(_) => perf::RING as u64,
        }
    }

    /// Returns the number of unread bytes in the fullest ring.
    pub fn fill(&self) -> u64 {
        match self {
            Self::Ringbuf(ring) => ring.fill(),
            Self::Perf(buffers) => buffers.fill(),
        }
    }

    /// Returns the number of events that did not fit into the rings; `None` for a map type that
    /// does not count them.
    pub fn lost(&self) -> Option<u64> {
        match self {
            Self::Ringbuf(_) => None,
            Self::Perf(buffers) => Some(buffers.lost()),
        }
    }
}
