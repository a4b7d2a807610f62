//! The least processor time that a window can take after a pause: the kernel's part for a wait, for
//! a visit to each other processor, and for a write with a sync.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The size of a write in bytes, and the number of blocks that are written in turns.
const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;

/// A step that repeats, each time after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare {
    Wake,
    Visit,
    Write,
    Both,
}

impl Bare {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wake => "wait for the tick",
            Self::Visit => "the same, and be on each other processor",
            Self::Write => "wait for the tick, write and sync a block",
            Self::Both => "wait, be on each other processor, write and sync",
        }
    }
}

/// Does the step this number of times, once in each interval, and returns the microseconds of
/// processor time of each.
pub fn measure(step: Bare, times: u32, interval: Duration) -> Result<f64> {
    // Affinity and processor time belong to a thread.
    let done = thread::spawn(move || repeat(step, times, interval));
    done.join()
        .map_err(|_| anyhow::anyhow!("a step panicked"))?
}

fn repeat(step: Bare, times: u32, interval: Duration) -> Result<f64> {
    let file = tempfile::tempfile().context("a file beside the daemon's")?;
    for block in 0..BLOCKS {
        file.write_all_at(&[1; BLOCK], block * BLOCK as u64)?;
    }
    file.sync_all()?;
    let home = sched_getaffinity(None)?;
    let before = processor_time();
    let mut next = Instant::now();
    for number in 0..times {
        next += interval;
        thread::sleep(next.saturating_duration_since(Instant::now()));
        if matches!(step, Bare::Visit | Bare::Both) {
            visit(&home)?;
        }
        if matches!(step, Bare::Write | Bare::Both) {
            write(&file, u64::from(number))?;
        }
    }
    let time = processor_time().saturating_sub(before);
    ensure!(!time.is_zero(), "no processor time within {times} ticks");
    Ok(time.as_secs_f64() * 1e6 / f64::from(times))
}

/// Moves this thread to each other CPU on which it may run.
fn visit(home: &CpuSet) -> Result<()> {
    let here = sched_getcpu();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| *cpu != here && home.is_set(*cpu)) {
        let mut there = CpuSet::new();
        there.set(cpu);
        sched_setaffinity(None, &there)?;
    }
    Ok(())
}

/// Overwrites a block of the file, so that its size and its place on the disk stay.
fn write(file: &File, number: u64) -> Result<()> {
    file.write_all_at(&[2; BLOCK], number % BLOCKS * BLOCK as u64)?;
    Ok(file.sync_data()?)
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let part = |part: i64| part.try_into().unwrap_or_default();
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}
