//! A segment of a journal: one pinned array map, which is mapped as a whole.
//!
//! | offset | content of the first segment |
//! |---|---|
//! | 0, 8, 16 | magic number, type of the map, bytes of a row |
//! | 24, 32 | numbers of rows that are started and that are done |
//! | 40 | bytes of the key in a row |
//! | 48, 56 | the cursor of the walk in batches, and 1 once the map has been walked to its end |
//! | 64 | for maps that are popped: the expected value of the row that was started last |
//! | then | rows: key and value |
//!
//! Further segments contain only rows. Each has up to twice the size of the one before, and none is
//! ever moved, so that the number of a row determines its place.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use aya_obj::generated::BPF_F_MMAPABLE;
use rustix::param::page_size;

use crate::sys::map::{self, BPF_MAP_TYPE_ARRAY, MapCreate};
use crate::sys::mapping::{Mapping, MappingAccess};
use crate::sys::object;

const MAGIC: u64 = u64::from_le_bytes(*b"tpjourn1");
const HEAD: [usize; 4] = [0, 8, 16, 40];
const EXPECTED: usize = 64;

/// The size of the first segment, in bytes. Each further one has twice the size of the one before,
/// up to [`DOUBLINGS`] times.
const FIRST_BYTES: usize = 64 << 10;
const DOUBLINGS: usize = 8;

/// The size of an element, in bytes. Older kernels refuse array maps with elements of some
/// megabytes, but not with many small ones.
const ELEMENT: usize = size_of::<u64>();

/// The kind of the map that a journal's rows come from, and the sizes of key and value in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalShape {
    /// The number of the map's type.
    pub kind: u32,
    pub key: usize,
    pub value: usize,
}

/// A number in the first segment.
#[derive(Clone, Copy, Debug)]
pub enum SegmentWord {
    /// The number of rows that are started. They are complete, but the map may still have their
    /// entries, and the pop of the last row may not have happened.
    Started = 24,
    /// The number of rows that are complete and whose entries the map no longer has.
    Done = 32,
    /// The bucket that the next batch begins with.
    Cursor = 48,
    /// 1 once the map has been walked to its end.
    Complete = 56,
}

#[derive(Debug)]
pub struct Segment {
    memory: Mapping,
    shape: JournalShape,
    /// The offset of the first slot, in bytes.
    start: usize,
    slots: usize,
}

impl JournalShape {
    fn start(self, index: usize) -> usize {
        if index == 0 {
            (EXPECTED + self.row()).next_multiple_of(EXPECTED)
        } else {
            0
        }
    }

    fn bytes(self, index: usize) -> usize {
        (FIRST_BYTES << index.min(DOUBLINGS))
            .max(self.start(index) + self.row())
            .next_multiple_of(page_size())
    }

    /// Returns the size of a row, in bytes.
    pub const fn row(self) -> usize {
        self.key + self.value
    }

    fn head(self) -> [u64; 4] {
        [MAGIC, self.kind.into(), self.row() as u64, self.key as u64]
    }
}

impl Segment {
    /// Makes a segment. The segment is pinned after it is complete, so that a crash leaves no
    /// incomplete segment.
    pub fn create(pin: &Path, shape: JournalShape, index: usize) -> io::Result<Self> {
        let map = create(shape.bytes(index))?;
        let segment = Self::map(&map, shape, index)?;
        if index == 0 {
            for (offset, word) in HEAD.into_iter().zip(shape.head()) {
                segment.memory.u64(offset).store(word, Ordering::Relaxed);
            }
        }
        object::obj_pin(map.as_fd(), pin)?;
        Ok(segment)
    }

    /// Maps a segment that an earlier process has pinned. The inner error is the reason why `map`
    /// is not a segment of this shape.
    pub fn adopt(
        map: &OwnedFd,
        shape: JournalShape,
        index: usize,
    ) -> io::Result<Result<Self, String>> {
        let Some(bytes) = size(map)?.filter(|bytes| *bytes >= EXPECTED) else {
            return Ok(Err(format!("segment {index} is another map")));
        };
        // The head is checked first, because it gives a better reason than the size: a segment of
        // another shape may be too short.
        let short = bytes < shape.bytes(index);
        if index == 0 {
            let head = Mapping::new(map.as_fd(), 0, EXPECTED, MappingAccess::Read)?;
            let [magic, kind, row, key] =
                HEAD.map(|offset| head.u64(offset).load(Ordering::Relaxed));
            if magic != MAGIC {
                return Ok(Err("it does not begin like a journal".into()));
            }
            if [magic, kind, row, key] != shape.head() {
                return Ok(Err(format!(
                    "it has rows of {row} bytes, {key} of the key, from a map of type {kind}, not {shape:?}"
                )));
            }
        }
        if short {
            return Ok(Err(format!("segment {index} has {bytes} bytes")));
        }
        Self::map(map, shape, index).map(Ok)
    }

    fn map(map: &OwnedFd, shape: JournalShape, index: usize) -> io::Result<Self> {
        let (start, bytes) = (shape.start(index), shape.bytes(index));
        let memory = Mapping::new(map.as_fd(), 0, bytes, MappingAccess::ReadWrite)?;
        Ok(Self {
            memory,
            shape,
            start,
            slots: (bytes - start) / shape.row().max(1),
        })
    }

    pub const fn slots(&self) -> usize {
        self.slots
    }

    pub fn slot(&mut self, slot: usize) -> &mut [u8] {
        let offset = self.start + slot * self.shape.row();
        // SAFETY: the daemon's lock keeps other processes out, no program uses the map, and nothing
        // else in this process has it mapped. The kernel writes there if a call gets this
        // reference.
        unsafe { self.memory.bytes_mut(offset, self.shape.row()) }
    }

    pub fn rows(&self, from: usize, count: usize) -> &[u8] {
        let offset = self.start + from * self.shape.row();
        // SAFETY: as above; this process writes through `&mut self` only.
        unsafe { self.memory.bytes(offset, count * self.shape.row()) }
    }

    /// Returns the expected value. This function and the next ones are for the first segment only.
    pub fn expected(&mut self) -> &mut [u8] {
        // SAFETY: as in `slot`.
        unsafe { self.memory.bytes_mut(EXPECTED, self.shape.value) }
    }

    pub fn word(&self, word: SegmentWord) -> usize {
        usize::try_from(self.memory.u64(word as usize).load(Ordering::SeqCst)).unwrap_or(usize::MAX)
    }

    /// Stores a number, after everything that was written before.
    pub fn set(&self, word: SegmentWord, number: usize) {
        self.memory
            .u64(word as usize)
            .store(number as u64, Ordering::SeqCst);
    }
}

/// Makes a map of this many bytes, rounded up to whole elements.
pub fn create(bytes: usize) -> io::Result<OwnedFd> {
    let elements = u32::try_from(bytes.div_ceil(ELEMENT)).map_err(io::Error::other)?;
    let array = MapCreate::array("tp_journal", ELEMENT, elements);
    map::map_create(&MapCreate {
        flags: BPF_F_MMAPABLE,
        ..array
    })
}

/// Returns the size of a map, in bytes; `None` if the map is not of the kind that [`create`] makes.
pub fn size(map: &OwnedFd) -> io::Result<Option<usize>> {
    let info = map::map_info(map.as_fd())?;
    let fits = info.type_ == BPF_MAP_TYPE_ARRAY && info.map_flags & BPF_F_MMAPABLE != 0;
    Ok(fits.then_some(info.value_size as usize * info.max_entries as usize))
}
