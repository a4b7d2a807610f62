//! `BPF_MAP_TYPE_RINGBUF` (Linux 5.8, `kernel/bpf/ringbuf.c`): one ring to which all CPUs write.
//! Its pages are mapped twice, one mapping after the other, so that a record never wraps and can be
//! decoded in place.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::param::page_size;

use crate::read::events::record::{EventRecord, ReadingEnd};
use crate::sys::mapping::{Mapping, MappingAccess};

/// The flag of a record that is still being written.
const BUSY: u32 = 1 << 31;
/// The flag of a record that the program has discarded.
const DISCARD: u32 = 1 << 30;
/// The size of a record's header: length and flags, then a page number for the kernel's own use.
const HEADER: u64 = 8;
/// The number of bytes after which space is given back to the kernel: small enough that writers
/// find room during a long batch, and large enough that the position which writers read does not
/// change with every record.
const RELEASE: u64 = 64 << 10;

#[derive(Debug)]
pub struct RingBuffer {
    pub fd: Arc<OwnedFd>,
    consumer: Mapping,
    /// The page with the producer's position.
    producer: Mapping,
    /// The two mappings of the ring; `None` while the ring has no reader.
    data: Option<Mapping>,
    /// The size of the ring, in bytes.
    pub size: u64,
    /// The position up to which records were read.
    position: u64,
}

impl RingBuffer {
    pub fn open(fd: &Arc<OwnedFd>, size: u32) -> io::Result<Self> {
        let page = page_size();
        let consumer = Mapping::new(fd.as_fd(), 0, page, MappingAccess::ReadWrite)?;
        let producer = Mapping::new(fd.as_fd(), page, page, MappingAccess::Read)?;
        let position = consumer.u64(0).load(Ordering::Relaxed);
        let mut ring = Self {
            fd: Arc::clone(fd),
            consumer,
            producer,
            data: None,
            size: size.into(),
            position,
        };
        ring.map()?;
        Ok(ring)
    }

    /// Maps the ring into memory again.
    pub fn map(&mut self) -> io::Result<()> {
        if self.data.is_none() {
            let length = 2 * self.size as usize;
            self.data = Some(Mapping::new(
                self.fd.as_fd(),
                2 * page_size(),
                length,
                MappingAccess::Read,
            )?);
        }
        Ok(())
    }

    /// Unmaps the ring, because its pages count twice as memory of this process. Records stay in
    /// the ring, and nothing is read until the ring is mapped again.
    pub fn unmap(&mut self) {
        self.data = None;
    }

    pub fn fill(&self) -> u64 {
        self.producer
            .u64(0)
            .load(Ordering::Acquire)
            .saturating_sub(self.position)
    }

    /// Passes on records until no record is left or `limit` bytes were read. After
    /// [`ReadingEnd::Drained`], the next record makes the descriptor readable.
    pub fn read(&mut self, limit: usize, mut sink: impl FnMut(EventRecord<'_>)) -> ReadingEnd {
        let mut read = 0;
        loop {
            let before = self.position;
            self.scan(limit as u64 - read, &mut sink);
            if self.position == before {
                return ReadingEnd::Drained;
            }
            read += self.position - before;
            // The kernel wakes only for the record at the consumer's position: it stores a record's
            // length, then loads the position. This side stores the position, then loads that
            // length in the next scan. Both sides need this order, because otherwise each could
            // miss the other's store.
            fence(Ordering::SeqCst);
            if read >= limit as u64 {
                return ReadingEnd::More;
            }
        }
    }

    /// Passes on records up to a record that is still being written, and gives their space back to
    /// the kernel.
    fn scan(&mut self, limit: u64, sink: &mut impl FnMut(EventRecord<'_>)) {
        let Some(data) = &self.data else { return };
        let start = self.position;
        let release = RELEASE.min(self.size / 8);
        let mut released = start;
        let producer = self.producer.u64(0).load(Ordering::Acquire);
        while self.position < producer && self.position - start < limit {
            let at = (self.position & (self.size - 1)) as usize;
            let header = data.u32(at).load(Ordering::Acquire);
            let len = u64::from(header & !(BUSY | DISCARD));
            if header & BUSY != 0 || len > self.size {
                break;
            }
            if header & DISCARD == 0 {
                // SAFETY: the record is complete, and its space is given back only after it was
                // handed on.
                let bytes = unsafe { data.bytes(at + HEADER as usize, len as usize) };
                sink(EventRecord::Sample { cpu: None, bytes });
            }
            self.position += (HEADER + len).next_multiple_of(8);
            if self.position - released >= release {
                released = self.position;
                self.consumer.u64(0).store(released, Ordering::Release);
            }
        }
        if self.position != released {
            self.consumer.u64(0).store(self.position, Ordering::Release);
        }
    }
}
