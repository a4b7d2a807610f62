//! A piece of a journal: one pinned array map, all of it in this process's memory.
//!
//! | at | in the first segment |
//! |---|---|
//! | 0, 8, 16 | magic number, type of the map, bytes of a row |
//! | 24, 32 | rows that were started, and those of them that are done |
//! | 40 | bytes of a row that are its key |
//! | 48, 56 | where the walk in batches is, and 1 once the map has been walked to its end |
//! | 64 | the value that the row started last is to get, of maps that are popped |
//! | then | rows: key and value |
//!
//! Others have nothing but rows. Each is larger than the one before, and none is moved: the number of a row says
//! where it is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::param::page_size;

use crate::plan::map_spec::BPF_F_MMAPABLE;
use crate::sys::map::{self, MapCreate};
use crate::sys::mapping::{Access, Mapping};
use crate::sys::object;

const MAGIC: u64 = u64::from_le_bytes(*b"tpjourn1");
const HEAD: [usize; 4] = [0, 8, 16, 40];
const EXPECTED: usize = 64;

/// Of the first segment; each has twice as many as the one before, up to [`DOUBLINGS`].
const FIRST_BYTES: usize = 64 << 10;
const DOUBLINGS: usize = 8;

const BPF_MAP_TYPE_ARRAY: u32 = 2;
/// Array maps of larger elements than some megabytes are refused by older kernels; of many they are not.
const ELEMENT: usize = size_of::<u64>();

/// What journals are of. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of the map's type.
    pub kind: u32,
    pub key: usize,
    pub value: usize,
}

/// A number in the first segment.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// Rows that are complete, but for the last one of a map that is popped. The map may still have them.
    Started = 24,
    /// Rows that are complete, and that the map has no more.
    Done = 32,
    /// The bucket that the next batch begins with.
    Cursor = 48,
    /// 1: there is no more to come.
    Complete = 56,
}

#[derive(Debug)]
pub struct Segment {
    memory: Mapping,
    shape: Shape,
    /// Where slots begin.
    start: usize,
    slots: usize,
}

impl Shape {
    fn start(self, index: usize) -> usize {
        if index == 0 { (EXPECTED + self.row()).next_multiple_of(EXPECTED) } else { 0 }
    }

    fn bytes(self, index: usize) -> usize {
        (FIRST_BYTES << index.min(DOUBLINGS))
            .max(self.start(index) + self.row())
            .next_multiple_of(page_size())
    }

    /// Bytes of a row.
    pub const fn row(self) -> usize {
        self.key + self.value
    }

    fn head(self) -> [u64; 4] {
        [MAGIC, self.kind.into(), self.row() as u64, self.key as u64]
    }
}

impl Segment {
    /// Pinned once it is complete.
    pub fn create(pin: &Path, shape: Shape, index: usize) -> io::Result<Self> {
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

    /// The inner error says why it is not one of this shape.
    pub fn adopt(map: &OwnedFd, shape: Shape, index: usize) -> io::Result<Result<Self, String>> {
        let Some(bytes) = size(map)?.filter(|bytes| *bytes >= EXPECTED) else {
            return Ok(Err(format!("segment {index} is another map")));
        };
        // Of a journal of larger values the first segment may be larger: its head says more than its size.
        let short = bytes < shape.bytes(index);
        if index == 0 {
            let head = Mapping::new(map.as_fd(), 0, EXPECTED, Access::Read)?;
            let [magic, kind, row, key] = HEAD.map(|offset| head.u64(offset).load(Ordering::Relaxed));
            if magic != MAGIC {
                return Ok(Err("it does not begin as journals do".into()));
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

    fn map(map: &OwnedFd, shape: Shape, index: usize) -> io::Result<Self> {
        let (start, bytes) = (shape.start(index), shape.bytes(index));
        let memory = Mapping::new(map.as_fd(), 0, bytes, Access::ReadWrite)?;
        Ok(Self { memory, shape, start, slots: (bytes - start) / shape.row().max(1) })
    }

    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// A row.
    pub fn slot(&mut self, slot: usize) -> &mut [u8] {
        let offset = self.start + slot * self.shape.row();
        // SAFETY: the daemon's lock keeps other processes out, no program uses the map, and nothing else in this process
        // has it mapped. The kernel writes where this reference is passed to it.
        unsafe { self.memory.bytes_mut(offset, self.shape.row()) }
    }

    /// Rows, one after the other.
    pub fn rows(&self, from: usize, count: usize) -> &[u8] {
        let offset = self.start + from * self.shape.row();
        // SAFETY: as above; this process writes through `&mut self` only.
        unsafe { self.memory.bytes(offset, count * self.shape.row()) }
    }

    /// Of the first segment, as what follows.
    pub fn expected(&mut self) -> &mut [u8] {
        // SAFETY: as in `slot`.
        unsafe { self.memory.bytes_mut(EXPECTED, self.shape.value) }
    }

    pub fn word(&self, word: Word) -> usize {
        usize::try_from(self.memory.u64(word as usize).load(Ordering::SeqCst)).unwrap_or(usize::MAX)
    }

    /// After what was written before.
    pub fn set(&self, word: Word, number: usize) {
        self.memory.u64(word as usize).store(number as u64, Ordering::SeqCst);
    }
}

/// A map of this many bytes, or a few more.
pub fn create(bytes: usize) -> io::Result<OwnedFd> {
    map::map_create(&MapCreate {
        name: "tp_journal",
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: ELEMENT as u32,
        max_entries: u32::try_from(bytes.div_ceil(ELEMENT)).map_err(io::Error::other)?,
        flags: BPF_F_MMAPABLE,
        ..MapCreate::default()
    })
}

/// The bytes of a map as [`create`] makes them; `None`: it is another one.
pub fn size(map: &OwnedFd) -> io::Result<Option<usize>> {
    let info = map::map_info(map.as_fd())?;
    let fits = info.type_ == BPF_MAP_TYPE_ARRAY && info.map_flags & BPF_F_MMAPABLE != 0;
    Ok(fits.then_some(info.value_size as usize * info.max_entries as usize))
}
