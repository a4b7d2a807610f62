//! The memory through which a driver gets packets: an array map of one value that this process has
//! mapped.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | the time of the present packet, in nanoseconds |
//! | 8 | the number of the next record |
//! | 12 | the number of records |
//! | 16 | the VLAN tag of all packets: protocol in network order (0: no tag), then the tag's content |
//! | 24 | whether the program of an interface has seen its packet |
//! | [`RECORDS`] | the records |
//! | [`DATA`] | the packets |

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use aya_obj::generated::BPF_F_MMAPABLE;

use crate::sys::map::{self, MapCreate};
use crate::sys::mapping::{Mapping, MappingAccess};

/// The number of packets in one run. Each packet takes a tail call, and the kernel allows 33, one
/// more than this.
pub const BATCH: usize = 32;
/// The longest packet that a driver takes, in bytes. The kernel lets a TC program make a packet no
/// longer than about this (`SKB_MAX_ALLOC`).
pub const LONGEST: usize = 16 << 10;
/// The offsets at which a packet may begin, in bytes: below a power of two, so that an offset can
/// be masked.
pub const ROOM: usize = 128 << 10;

pub const NEXT: usize = 8;
pub const COUNT: usize = 12;
pub const TAG: usize = 16;
pub const DONE: usize = 24;
pub const RECORDS: usize = 64;
/// The size of a record.
pub const RECORD: usize = 32;
/// The parts of a record: the time of the packet, its offset in the data, its length, its type
/// (`PACKET_HOST`, ...), and whether the program has seen the packet.
pub const TIME: usize = 0;
pub const OFFSET: usize = 8;
pub const LENGTH: usize = 12;
pub const KIND: usize = 16;
pub const SEEN: usize = 20;
pub const DATA: usize = RECORDS + BATCH * RECORD;

const SIZE: usize = DATA + ROOM + LONGEST;

/// The mapped memory. This process accesses the memory only while no program runs.
#[derive(Debug)]
pub struct Control {
    map: OwnedFd,
    memory: Mapping,
}

impl Control {
    pub fn new() -> io::Result<Self> {
        let array = MapCreate::array("tp_replay", SIZE, 1);
        let map = map::map_create(&MapCreate {
            flags: BPF_F_MMAPABLE,
            ..array
        })?;
        let memory = Mapping::new(map.as_fd(), 0, SIZE, MappingAccess::ReadWrite)?;
        Ok(Self { map, memory })
    }

    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Sets the time for a program that runs without a driver.
    pub fn set_time(&self, time_ns: u64) {
        self.memory.u64(0).store(time_ns, Ordering::Relaxed);
    }

    /// Prepares a run with this number of records. `tag` is a VLAN tag: its protocol in network
    /// order, and its content.
    pub fn start(&self, records: usize, tag: [u16; 2]) {
        self.memory.u32(NEXT).store(0, Ordering::Relaxed);
        self.memory
            .u32(COUNT)
            .store(records as u32, Ordering::Relaxed);
        self.memory.u32(TAG).store(tag[0].into(), Ordering::Relaxed);
        self.memory
            .u32(TAG + 4)
            .store(tag[1].into(), Ordering::Relaxed);
    }

    /// Prepares a packet for the program of an interface.
    pub fn begin(&self) {
        self.memory.u32(DONE).store(0, Ordering::SeqCst);
    }

    /// Tells whether the program of an interface has seen its packet.
    pub fn is_done(&self) -> bool {
        self.memory.u32(DONE).load(Ordering::SeqCst) != 0
    }

    /// Writes the record `index`.
    pub fn set_record(&self, index: usize, time_ns: u64, offset: usize, length: usize, kind: u32) {
        let record = RECORDS + index * RECORD;
        self.memory
            .u64(record + TIME)
            .store(time_ns, Ordering::Relaxed);
        self.memory
            .u32(record + OFFSET)
            .store(offset as u32, Ordering::Relaxed);
        self.memory
            .u32(record + LENGTH)
            .store(length as u32, Ordering::Relaxed);
        self.memory
            .u32(record + KIND)
            .store(kind, Ordering::Relaxed);
        self.memory.u32(record + SEEN).store(0, Ordering::Relaxed);
    }

    /// Tells whether the program has seen the packet of the record `index`.
    pub fn is_seen(&self, index: usize) -> bool {
        self.memory
            .u32(RECORDS + index * RECORD + SEEN)
            .load(Ordering::Relaxed)
            != 0
    }

    /// Writes the pieces of a packet to `offset` of the data, and zeros after them until the packet
    /// has its `length`.
    pub fn set_packet(&mut self, offset: usize, pieces: [&[u8]; 2], length: usize) {
        // SAFETY: the map is this process's own, and no program that uses it runs now.
        let room = unsafe { self.memory.bytes_mut(DATA + offset, length) };
        let (first, rest) = room.split_at_mut(pieces[0].len());
        first.copy_from_slice(pieces[0]);
        let (second, rest) = rest.split_at_mut(pieces[1].len());
        second.copy_from_slice(pieces[1]);
        rest.fill(0);
    }
}
