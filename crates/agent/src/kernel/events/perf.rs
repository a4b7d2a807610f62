//! `BPF_MAP_TYPE_PERF_EVENT_ARRAY`: one ring per CPU, made by `perf_event_open(2)` and put into the map; without
//! that the program has nowhere to write. The kernel counts what did not fit.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aya_obj::generated::perf_event_attr;

use super::mapping::{Access, Mapping, page_size};
use super::{Event, Progress};
use crate::kernel::{quiesce, sys};

/// Bytes of one CPU's ring.
pub(super) const RING: usize = 256 << 10;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_BPF_OUTPUT: u64 = 10;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
/// Linux 6.0: reading the descriptor gives the number of lost records.
const PERF_FORMAT_LOST: u64 = 1 << 4;
const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;
/// Places in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
/// `struct perf_event_header`: type, misc, size.
const HEADER: usize = 8;

/// The rings of all CPUs.
#[derive(Debug)]
pub struct PerfBuffers {
    cpus: Vec<CpuBuffer>,
    /// Lost records that the rings told of, for kernels without [`PERF_FORMAT_LOST`].
    told: u64,
}

#[derive(Debug)]
struct CpuBuffer {
    cpu: u32,
    fd: Arc<OwnedFd>,
    mapping: Mapping,
    page: usize,
    /// How far records were read.
    tail: u64,
    counts_lost: bool,
    /// The one record that wraps around.
    scratch: Vec<u8>,
}

impl PerfBuffers {
    /// Makes a ring for each CPU that is online and has a place in the map.
    pub fn open(map: BorrowedFd<'_>, places: u32) -> io::Result<Self> {
        let possible = u32::try_from(quiesce::possible_cpus()?).unwrap_or(u32::MAX);
        let mut cpus = Vec::new();
        for cpu in 0..possible.min(places) {
            match CpuBuffer::open(cpu) {
                Ok(buffer) => {
                    sys::map_update(map, &cpu.to_ne_bytes(), &buffer.fd.as_raw_fd().to_ne_bytes())?;
                    cpus.push(buffer);
                }
                // A CPU that is not there now.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { cpus, told: 0 })
    }

    pub fn fds(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        self.cpus.iter().map(|buffer| &buffer.fd)
    }

    /// Records that the kernel had no room for since the rings were made.
    pub fn lost(&self) -> u64 {
        self.cpus.iter().map(CpuBuffer::lost).sum::<Option<u64>>().unwrap_or(self.told)
    }

    pub fn fill(&self) -> u64 {
        let waiting = |buffer: &CpuBuffer| {
            buffer.mapping.u64(DATA_HEAD).load(Ordering::Acquire).saturating_sub(buffer.tail)
        };
        self.cpus.iter().map(waiting).max().unwrap_or(0)
    }

    pub fn read(&mut self, limit: usize, mut sink: impl FnMut(Event<'_>)) -> Progress {
        let mut progress = Progress::Drained;
        let told = &mut self.told;
        for buffer in &mut self.cpus {
            let more = buffer.read(limit, |event| {
                if let Event::Lost { count, .. } = event {
                    *told += count;
                }
                sink(event);
            });
            if more == Progress::More {
                progress = Progress::More;
            }
        }
        progress
    }
}

impl CpuBuffer {
    fn open(cpu: u32) -> io::Result<Self> {
        let (fd, counts_lost) = match perf_event_open(cpu, PERF_FORMAT_LOST) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (perf_event_open(cpu, 0)?, false),
            result => (result?, true),
        };
        let page = page_size();
        let mapping = Mapping::new(fd.as_fd(), 0, page + RING, Access::ReadWrite)?;
        Ok(Self { cpu, fd: Arc::new(fd), mapping, page, tail: 0, counts_lost, scratch: Vec::new() })
    }

    fn read(&mut self, limit: usize, mut sink: impl FnMut(Event<'_>)) -> Progress {
        let head = self.mapping.u64(DATA_HEAD).load(Ordering::Acquire);
        let start = self.tail;
        while self.tail < head && self.tail - start < limit as u64 {
            let at = self.tail as usize & (RING - 1);
            let kind = self.mapping.u32(self.page + at).load(Ordering::Relaxed);
            // Records are aligned to 8, so a header never wraps.
            let size = (self.mapping.u32(self.page + at + 4).load(Ordering::Relaxed) >> 16) as usize;
            if size < HEADER {
                // Nothing the kernel writes: give up what there is rather than loop.
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
                self.scratch.extend_from_slice(unsafe { self.mapping.bytes(self.page, size - first) });
                record = &self.scratch;
            }
            if let Some(event) = parse(self.cpu, kind, record) {
                sink(event);
            }
            self.tail += size as u64;
        }
        if self.tail != start {
            self.mapping.u64(DATA_TAIL).store(self.tail, Ordering::Release);
        }
        if self.tail == head { Progress::Drained } else { Progress::More }
    }

    /// `None`: this kernel does not say.
    fn lost(&self) -> Option<u64> {
        let mut counts = [0_u64; 2];
        if !self.counts_lost {
            return None;
        }
        // SAFETY: the kernel writes at most the length that is passed into a live array.
        let read =
            unsafe { libc::read(self.fd.as_raw_fd(), counts.as_mut_ptr().cast(), size_of_val(&counts)) };
        (read == size_of_val(&counts) as isize).then_some(counts[1])
    }
}

fn parse(cpu: u32, kind: u32, record: &[u8]) -> Option<Event<'_>> {
    let body = &record[HEADER..];
    match kind {
        PERF_RECORD_SAMPLE => {
            let (len, bytes) = body.split_first_chunk::<4>()?;
            Some(Event::Sample { cpu: Some(cpu), bytes: bytes.get(..u32::from_ne_bytes(*len) as usize)? })
        }
        PERF_RECORD_LOST => {
            // The event's id, then the count.
            let count = body.get(8..)?.first_chunk::<8>()?;
            Some(Event::Lost { cpu, count: u64::from_ne_bytes(*count) })
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
    const EVERY_PROCESS: i32 = -1;
    const NO_GROUP: i32 = -1;
    // SAFETY: `attr` is a live structure of the size it names.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
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
