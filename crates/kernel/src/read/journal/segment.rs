//! A piece of a journal: one pinned array map, all of it in this process's memory.
//!
//! | at | in the first segment |
//! |---|---|
//! | 0, 8, 16 | magic number, type of the map, bytes of a value |
//! | 24, 32 | slots that were started, and those of them that are known to have their value |
//! | 64 | the value that the slot started last is to get |
//! | then | slots |
//!
//! Others have nothing but slots. Each is larger than the one before, and none is moved: the number of a slot says
//! where it is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::param::page_size;

use crate::plan::map_spec::BPF_F_MMAPABLE;
use crate::sys::map::{self, MapCreate};
use crate::sys::mapping::{Access, Mapping};
use crate::sys::object;

const MAGIC: u64 = u64::from_le_bytes(*b"tpjourn1");
const HEAD: [usize; 3] = [0, 8, 16];
const STARTED: usize = 24;
const DONE: usize = 32;
const EXPECTED: usize = 64;

/// Of the first segment; each has twice as many as the one before, up to [`DOUBLINGS`].
const FIRST_BYTES: usize = 64 << 10;
const DOUBLINGS: usize = 8;

const BPF_MAP_TYPE_ARRAY: u32 = 2;
/// Array maps of larger elements than some megabytes are refused by older kernels; of many they are not.
const ELEMENT: usize = size_of::<u64>();

/// What journals are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of the map's type.
    pub kind: u32,
    /// Bytes.
    pub value: usize,
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
        if index == 0 { (EXPECTED + self.value).next_multiple_of(EXPECTED) } else { 0 }
    }

    fn bytes(self, index: usize) -> usize {
        (FIRST_BYTES << index.min(DOUBLINGS))
            .max(self.start(index) + self.value)
            .next_multiple_of(page_size())
    }

    fn head(self) -> [u64; 3] {
        [MAGIC, self.kind.into(), self.value as u64]
    }
}

impl Segment {
    /// Pinned once it is complete.
    pub fn create(pin: &Path, shape: Shape, index: usize) -> io::Result<Self> {
        let map = map::map_create(&MapCreate {
            name: "tp_journal",
            map_type: BPF_MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: ELEMENT as u32,
            max_entries: u32::try_from(shape.bytes(index) / ELEMENT).map_err(io::Error::other)?,
            flags: BPF_F_MMAPABLE,
            ..MapCreate::default()
        })?;
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
        let info = map::map_info(map.as_fd())?;
        let bytes = info.value_size as usize * info.max_entries as usize;
        if info.type_ != BPF_MAP_TYPE_ARRAY || info.map_flags & BPF_F_MMAPABLE == 0 || bytes < EXPECTED {
            return Ok(Err(format!("segment {index} is another map")));
        }
        // Of a journal of larger values the first segment may be larger: its head says more than its size.
        let short = bytes < shape.bytes(index);
        if index == 0 {
            let head = Mapping::new(map.as_fd(), 0, EXPECTED, Access::Read)?;
            let [magic, kind, value] = HEAD.map(|offset| head.u64(offset).load(Ordering::Relaxed));
            if magic != MAGIC {
                return Ok(Err("it does not begin as journals do".into()));
            }
            if [magic, kind, value] != shape.head() {
                let Shape { kind: type_here, value: bytes_here } = shape;
                return Ok(Err(format!(
                    "it has values of {value} bytes from a map of type {kind}, not {bytes_here} bytes and type \
                     {type_here}"
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
        Ok(Self { memory, shape, start, slots: (bytes - start) / shape.value.max(1) })
    }

    pub const fn slots(&self) -> usize {
        self.slots
    }

    pub fn slot(&mut self, slot: usize) -> &mut [u8] {
        let offset = self.start + slot * self.shape.value;
        // SAFETY: the daemon's lock keeps other processes out, no program uses the map, and nothing else in this process
        // has it mapped. The kernel writes where this reference is passed to it.
        unsafe { self.memory.bytes_mut(offset, self.shape.value) }
    }

    pub fn values(&self, from: usize, count: usize) -> &[u8] {
        let offset = self.start + from * self.shape.value;
        // SAFETY: as above; this process writes through `&mut self` only.
        unsafe { self.memory.bytes(offset, count * self.shape.value) }
    }

    /// Of the first segment, as what follows.
    pub fn expected(&mut self) -> &mut [u8] {
        // SAFETY: as in `slot`.
        unsafe { self.memory.bytes_mut(EXPECTED, self.shape.value) }
    }

    pub fn started(&self) -> usize {
        load(self.memory.u64(STARTED))
    }

    pub fn done(&self) -> usize {
        load(self.memory.u64(DONE))
    }

    /// After what was written before.
    pub fn set_started(&self, slots: usize) {
        self.memory.u64(STARTED).store(slots as u64, Ordering::SeqCst);
    }

    /// As [`Self::set_started`].
    pub fn set_done(&self, slots: usize) {
        self.memory.u64(DONE).store(slots as u64, Ordering::SeqCst);
    }
}

fn load(word: &AtomicU64) -> usize {
    usize::try_from(word.load(Ordering::SeqCst)).unwrap_or(usize::MAX)
}
