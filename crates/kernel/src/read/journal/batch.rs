//! The batch that is under way: keys, values, their number and the cursor of one
//! `BPF_MAP_LOOKUP_AND_DELETE_BATCH`, all in a pinned array map. The kernel writes them within the
//! call, which a killed process still completes: the next process that opens the map knows which
//! entries the call has moved, if any.
//!
//! | offset | content |
//! |---|---|
//! | 0 | the arguments of the call; their `count` becomes the number of entries |
//! | 64 | 1 from just before the call until the entries are rows of the journal |
//! | 72, 80 | the number of rows in the journal before the batch, and the number of entries that there is room for |
//! | 88, 96 | the cursor before and after the call |
//! | 128 | keys, then values |

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use twinprobe_ebpf_common::RawTable;

use crate::read::journal::segment::{JournalShape, create, size};
use crate::sys::batch::{self, BatchAttr};
use crate::sys::mapping::{Mapping, MappingAccess};
use crate::sys::object;

const UNDER_WAY: usize = 64;
const BEFORE: usize = 72;
const ROOM: usize = 80;
const FROM: usize = 88;
const TO: usize = 96;
const KEYS: usize = 128;
/// The value of `TO` before a call. A call that moves entries replaces it with the number of a
/// bucket, and no hash has so many buckets.
const UNWRITTEN: u64 = u32::MAX as u64;

#[derive(Debug)]
pub struct Batch {
    memory: Mapping,
    shape: JournalShape,
    pub room: usize,
}

/// The entries that a call has moved out of a map.
#[derive(Debug)]
pub struct Moved {
    /// The number of rows that the journal had before the call.
    pub before: usize,
    pub rows: RawTable,
    /// The cursor of the next batch; `None` if the call moved nothing.
    pub cursor: Option<usize>,
}

impl Batch {
    pub fn create(pin: &Path, shape: JournalShape, room: usize) -> io::Result<Self> {
        let bytes = values(shape, room) + room * shape.value;
        let map = create(bytes)?;
        let batch = Self {
            memory: Mapping::new(map.as_fd(), 0, bytes, MappingAccess::ReadWrite)?,
            shape,
            room,
        };
        batch.set(ROOM, room as u64);
        object::obj_pin(map.as_fd(), pin)?;
        Ok(batch)
    }

    /// Maps the batch that an earlier process has made; `None` if `map` is not a batch for rows of
    /// this shape.
    pub fn adopt(map: &OwnedFd, shape: JournalShape) -> io::Result<Option<Self>> {
        let Some(bytes) = size(map)?.filter(|bytes| *bytes >= KEYS) else {
            return Ok(None);
        };
        let memory = Mapping::new(map.as_fd(), 0, bytes, MappingAccess::ReadWrite)?;
        let room = usize::try_from(memory.u64(ROOM).load(Ordering::SeqCst)).unwrap_or(usize::MAX);
        let needed = room
            .checked_mul(shape.row())
            .map(|rows| rows.saturating_add(KEYS));
        let fits = needed.is_some_and(|needed| needed <= bytes)
            && values(shape, room) + room * shape.value <= bytes;
        Ok(fits.then_some(Self {
            memory,
            shape,
            room,
        }))
    }

    /// Moves entries out of the hash `map`, as many as fit, beginning with the bucket `cursor`. The
    /// journal has `before` rows.
    pub fn take(&mut self, map: BorrowedFd<'_>, before: usize, cursor: usize) -> io::Result<()> {
        batch::map_take_batch(self.prepare(map, before, cursor))
    }

    /// Stores the arguments of the call in the map, and marks the call as under way.
    pub fn prepare(&mut self, map: BorrowedFd<'_>, before: usize, cursor: usize) -> &mut BatchAttr {
        self.set(BEFORE, before as u64);
        self.set(FROM, cursor as u64);
        self.set(TO, UNWRITTEN);
        let bytes = values(self.shape, self.room) + self.room * self.shape.value;
        // SAFETY: nothing else in this process reaches the memory as long as `self` is borrowed.
        let memory = unsafe { self.memory.bytes_mut(0, bytes) }.as_mut_ptr();
        let address = |offset| memory as u64 + offset as u64;
        let attr = BatchAttr {
            in_batch: address(FROM),
            out_batch: address(TO),
            keys: address(KEYS),
            values: address(values(self.shape, self.room)),
            count: self.room as u32,
            map_fd: map.as_raw_fd() as u32,
            ..BatchAttr::default()
        };
        #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins a page")]
        // SAFETY: aligned, as the mapping begins a page, and long enough; the kernel writes there
        // within the call that the reference is passed to.
        let shared = unsafe { &mut *memory.cast::<BatchAttr>() };
        *shared = attr;
        self.set(UNDER_WAY, 1);
        shared
    }

    /// Returns the entries that the last call has moved; `None` if these entries are already rows
    /// of the journal.
    pub fn moved(&self) -> Option<Moved> {
        let number = |offset| self.memory.u64(offset).load(Ordering::SeqCst) as usize;
        if number(UNDER_WAY) == 0 {
            return None;
        }
        let cursor = Some(number(TO)).filter(|cursor| *cursor as u64 != UNWRITTEN);
        let count = self
            .memory
            .u32(std::mem::offset_of!(BatchAttr, count))
            .load(Ordering::SeqCst) as usize;
        let count = if cursor.is_some() {
            count.min(self.room)
        } else {
            0
        };
        // SAFETY: only calls write there, and none is under way.
        let bytes = |offset, size| unsafe { self.memory.bytes(offset, count * size) }.to_vec();
        let keys = bytes(KEYS, self.shape.key);
        let values = bytes(values(self.shape, self.room), self.shape.value);
        Some(Moved {
            before: number(BEFORE),
            rows: RawTable {
                keys,
                values,
                ..RawTable::default()
            },
            cursor,
        })
    }

    /// Records that the moved entries are rows of the journal.
    pub fn finish(&self) {
        self.set(UNDER_WAY, 0);
    }

    fn set(&self, offset: usize, number: u64) {
        self.memory.u64(offset).store(number, Ordering::SeqCst);
    }
}

/// Returns the offset at which the values begin, in bytes.
const fn values(shape: JournalShape, room: usize) -> usize {
    KEYS + (room * shape.key).next_multiple_of(8)
}
