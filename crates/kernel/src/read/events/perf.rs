//! `BPF_MAP_TYPE_PERF_EVENT_ARRAY`: one ring for each CPU, made by `perf_event_open(2)` and put
//! into the map; without a ring the program has nowhere to write. The kernel counts the records
//! that do not fit.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aya_obj::generated::perf_event_attr;
use rustix::param::page_size;

use crate::read::events::record::{EventRecord, ReadingEnd};
use crate::sys::mapping::{Mapping, MappingAccess};
use crate::sys::{cpus, map};

/// The size of one CPU's ring, in bytes.
pub const RING: usize = 256 << 10;

pub const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_BPF_OUTPUT: u64 = 10;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
/// The flag with which a read of the descriptor returns the number of lost records (Linux 6.0).
const PERF_FORMAT_LOST: u64 = 1 << 4;
const PERF_RECORD_LOST: u32 = 2;
pub const PERF_RECORD_SAMPLE: u32 = 9;
/// Offsets in `struct perf_event_mmap_page` (`linux/perf_event.h`).
pub const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
/// The size of `struct perf_event_header`: type, misc, size.
pub const HEADER: usize = 8;

/// The rings of all CPUs.
#[derive(Debug)]
pub struct PerfBuffers {
    map: Arc<OwnedFd>,
    /// The number of CPUs that have a place in the map.
    places: usize,
    cpus: Vec<CpuBuffer>,
    /// The number of lost records that records in the rings have reported. It is needed on kernels
    /// without [`PERF_FORMAT_LOST`].
    told: u64,
    /// The number of records lost in rings that were removed.
    lost_before: u64,
}

/// The ring of one CPU.
#[derive(Debug)]
struct CpuBuffer {
    cpu: u32,
    /// True if the CPU went offline. The kernel adds nothing to the ring any more.
    ended: bool,
    fd: Arc<OwnedFd>,
    mapping: Mapping,
    page: usize,
    /// The position up to which records were read.
    tail: u64,
    counts_lost: bool,
    /// A copy of a record that wraps around the end of the ring.
    scratch: Vec<u8>,
}

impl PerfBuffers {
    /// Makes a ring for each CPU that is online and has a place in the map.
    pub fn open(map: &Arc<OwnedFd>, places: u32) -> io::Result<Self> {
        let (map, places) = (Arc::clone(map), places as usize);
        let mut buffers = Self {
            map,
            places,
            cpus: Vec::new(),
            told: 0,
            lost_before: 0,
        };
        buffers.follow(&cpus::online_cpus()?)?;
        Ok(buffers)
    }

    /// Makes rings for CPUs that have come online since the last call. Returns true if there are
    /// new rings.
    pub fn follow(&mut self, online: &[usize]) -> io::Result<bool> {
        for buffer in &mut self.cpus {
            buffer.ended |= !online.contains(&(buffer.cpu as usize));
        }
        let before = self.cpus.len();
        for &cpu in online.iter().filter(|cpu| **cpu < self.places) {
            let cpu = cpu as u32;
            if self
                .cpus
                .iter()
                .any(|buffer| buffer.cpu == cpu && !buffer.ended)
            {
                continue;
            }
            match CpuBuffer::open(cpu) {
                Ok(buffer) => {
                    let ring = buffer.fd.as_raw_fd().to_ne_bytes();
                    map::map_update(self.map.as_fd(), &cpu.to_ne_bytes(), &ring)?;
                    self.cpus.push(buffer);
                }
                // The CPU is offline again.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.cpus.len() > before)
    }

    pub fn fds(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        self.cpus.iter().map(|buffer| &buffer.fd)
    }

    /// Returns the number of records that did not fit since the rings were made.
    pub fn lost(&self) -> u64 {
        let lost = self.cpus.iter().map(CpuBuffer::lost).sum::<Option<u64>>();
        lost.map_or(self.told, |lost| lost + self.lost_before)
    }

    pub fn fill(&self) -> u64 {
        self.cpus.iter().map(CpuBuffer::fill).max().unwrap_or(0)
    }

    pub fn read(&mut self, limit: usize, mut sink: impl FnMut(EventRecord<'_>)) -> ReadingEnd {
        let mut progress = ReadingEnd::Drained;
        let told = &mut self.told;
        for buffer in &mut self.cpus {
            let more = buffer.read(limit, |event| {
                if let EventRecord::Lost { count, .. } = event {
                    *told += count;
                }
                sink(event);
            });
            if more == ReadingEnd::More {
                progress = ReadingEnd::More;
            }
        }
        let lost_before = &mut self.lost_before;
        self.cpus.retain(|buffer| {
            let over = buffer.ended && buffer.fill() == 0;
            *lost_before += if over { buffer.lost().unwrap_or(0) } else { 0 };
            !over
        });
        progress
    }
}

impl CpuBuffer {
    fn open(cpu: u32) -> io::Result<Self> {
        let (fd, counts_lost) = match perf_event_open(cpu, PERF_FORMAT_LOST) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (perf_event_open(cpu, 0)?, false)
            }
            result => (result?, true),
        };
        let page = page_size();
        let mapping = Mapping::new(fd.as_fd(), 0, page + RING, MappingAccess::ReadWrite)?;
        let fd = Arc::new(fd);
        Ok(Self {
            cpu,
            ended: false,
            fd,
            mapping,
            page,
            tail: 0,
            counts_lost,
            scratch: Vec::new(),
        })
    }

    fn fill(&self) -> u64 {
        self.mapping
            .u64(DATA_HEAD)
            .load(Ordering::Acquire)
            .saturating_sub(self.tail)
    }

    fn read(&mut self, limit: usize, mut sink: impl FnMut(EventRecord<'_>)) -> ReadingEnd {
        let head = self.mapping.u64(DATA_HEAD).load(Ordering::Acquire);
        let start = self.tail;
        while self.tail < head && self.tail - start < limit as u64 {
            let at = self.tail as usize & (RING - 1);
            let kind = self.mapping.u32(self.page + at).load(Ordering::Relaxed);
            // Records are aligned to 8, so a header never wraps.
            let size =
                (self.mapping.u32(self.page + at + 4).load(Ordering::Relaxed) >> 16) as usize;
            if size < HEADER {
                // The kernel never writes such a record. The rest of the ring is dropped, because a
                // size of 0 would loop forever.
                self.tail = head;
                break;
            }
            let first = size.min(RING - at);
            // SAFETY: the kernel does not write between our tail and its head.
            let mut record = unsafe { self.mapping.bytes(self.page + at, first) };
            if first < size {
                self.scratch.clear();
                self.scratch.extend_from_slice(record);
                // SAFETY: as above.
                self.scratch
                    .extend_from_slice(unsafe { self.mapping.bytes(self.page, size - first) });
                record = &self.scratch;
            }
            if let Some(event) = parse(self.cpu, kind, record) {
                sink(event);
            }
            self.tail += size as u64;
        }
        if self.tail != start {
            self.mapping
                .u64(DATA_TAIL)
                .store(self.tail, Ordering::Release);
        }
        if self.tail == head {
            ReadingEnd::Drained
        } else {
            ReadingEnd::More
        }
    }

    /// Reads the number of lost records; `None` if this kernel does not report it.
    fn lost(&self) -> Option<u64> {
        let mut counts = [0; 16];
        let read = self
            .counts_lost
            .then(|| rustix::io::read(&self.fd, &mut counts))?;
        // The number of records, then the number of lost ones.
        let lost = counts.last_chunk().filter(|_| read == Ok(counts.len()));
        lost.copied().map(u64::from_ne_bytes)
    }
}

fn parse(cpu: u32, kind: u32, record: &[u8]) -> Option<EventRecord<'_>> {
    let body = &record[HEADER..];
    match kind {
        PERF_RECORD_SAMPLE => {
            let (len, bytes) = body.split_first_chunk::<4>()?;
            Some(EventRecord::Sample {
                cpu: Some(cpu),
                bytes: bytes.get(..u32::from_ne_bytes(*len) as usize)?,
            })
        }
        PERF_RECORD_LOST => {
            // The record contains the id of the event, and then the count.
            let count = body.get(8..)?.first_chunk::<8>()?;
            Some(EventRecord::Lost {
                cpu,
                count: u64::from_ne_bytes(*count),
            })
        }
        _ => None,
    }
}

fn perf_event_open(cpu: u32, read_format: u64) -> io::Result<OwnedFd> {
    // SAFETY: a structure of integers, for which zero is a value.
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.type_ = PERF_TYPE_SOFTWARE;
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.config = PERF_COUNT_SW_BPF_OUTPUT;
    attr.sample_type = PERF_SAMPLE_RAW;
    attr.read_format = read_format;
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_2.wakeup_events = 1;
    open_event(&attr, cpu)
}

/// Opens an event of everything that runs on a CPU.
pub fn open_event(attr: &perf_event_attr, cpu: u32) -> io::Result<OwnedFd> {
    const EVERY_PROCESS: i32 = -1;
    const NO_GROUP: i32 = -1;
    // SAFETY: `attr` is a live structure of the size it names.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            EVERY_PROCESS,
            cpu,
            NO_GROUP,
            libc::c_ulong::from(aya_obj::generated::PERF_FLAG_FD_CLOEXEC),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::map::MapCreate;

    /// The set of rings follows the set of online CPUs. This test runs as root.
    #[test]
    fn rings_follow_the_cpus() {
        let online = cpus::online_cpus().unwrap();
        let places = cpus::possible_cpus().unwrap() as u32;
        let create = MapCreate {
            name: "tp_test",
            map_type: twinprobe_ebpf_common::EventKind::PerfEventArray.bpf_type(),
            key_size: 4,
            value_size: 4,
            max_entries: places,
            ..MapCreate::default()
        };
        let map = Arc::new(map::map_create(&create).unwrap());
        let mut buffers = PerfBuffers::open(&map, places).unwrap();
        assert_eq!(buffers.fds().count(), online.len());
        assert!(!buffers.follow(&online).unwrap(), "all have one");

        // The last CPU is removed. Its ring is empty, so the next read removes it.
        let (last, rest) = online.split_last().unwrap();
        assert!(!buffers.follow(rest).unwrap());
        assert_eq!(buffers.read(usize::MAX, |_| {}), ReadingEnd::Drained);
        assert_eq!(buffers.fds().count(), rest.len());
        let key = (*last as u32).to_ne_bytes();
        assert!(map::map_delete(map.as_fd(), &key).unwrap());

        // The CPU comes back and gets a new ring, which is in the map.
        assert!(buffers.follow(&online).unwrap());
        assert_eq!(buffers.fds().count(), online.len());
        assert!(
            map::map_delete(map.as_fd(), &key).unwrap(),
            "the map has no ring for CPU {last}"
        );
        assert_eq!(buffers.lost(), 0);
    }

    #[test]
    fn cpus_without_a_place_get_no_ring() {
        let map = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let mut buffers = PerfBuffers {
            map,
            places: 0,
            cpus: Vec::new(),
            told: 0,
            lost_before: 0,
        };
        assert!(!buffers.follow(&[0, 1]).unwrap());
    }
}
