//! Samples of the clocks of all CPUs: the stack of functions in the kernel at each tick
//! (`perf_event_open(2)`).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;

use aya_obj::generated::{perf_event_attr, perf_event_sample_format, perf_sw_ids};
use rustix::param::page_size;

use crate::read::events::perf::{
    DATA_HEAD, HEADER, PERF_RECORD_SAMPLE, PERF_TYPE_SOFTWARE, open_event,
};
use crate::sys::cpus;
use crate::sys::mapping::{Mapping, MappingAccess};

/// The number of ticks of each CPU in a second. A tick takes some microseconds.
const FREQUENCY: u64 = 4_000;
/// The most functions of a stack. More functions are not needed.
const DEPTH: u16 = 16;
/// The size of one CPU's buffer, in bytes. A sample has at most 160 bytes. Once the buffer is full,
/// further samples are lost.
const BUFFER: usize = 64 << 10;
/// The first of the numbers in a stack that are not addresses: they mark the beginning of a part of
/// the stack.
const MARKS: u64 = 0u64.wrapping_sub(4095);

/// A sampling in progress. Its end comes with the drop of this value.
pub struct Sampler(Vec<(OwnedFd, Mapping)>);

impl Sampler {
    /// Starts the clocks. Needs CAP_PERFMON.
    pub fn start() -> io::Result<Self> {
        // SAFETY: a structure of integers, for which zero is a value.
        let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
        attr.type_ = PERF_TYPE_SOFTWARE;
        attr.size = size_of::<perf_event_attr>() as u32;
        attr.config = perf_sw_ids::PERF_COUNT_SW_CPU_CLOCK as u64;
        attr.sample_type = perf_event_sample_format::PERF_SAMPLE_CALLCHAIN as u64;
        attr.sample_max_stack = DEPTH;
        attr.__bindgen_anon_1.sample_freq = FREQUENCY;
        attr.set_freq(1);
        attr.set_exclude_user(1);
        attr.set_exclude_callchain_user(1);
        let open = |cpu: usize| {
            let event = open_event(&attr, cpu as u32)?;
            let mapping = Mapping::new(
                event.as_fd(),
                0,
                page_size() + BUFFER,
                MappingAccess::ReadWrite,
            )?;
            Ok((event, mapping))
        };
        Ok(Self(
            cpus::online_cpus()?
                .into_iter()
                .map(open)
                .collect::<io::Result<_>>()?,
        ))
    }

    /// Ends the sampling, and calls `visit` with the addresses of each sample, innermost first.
    pub fn finish(self, mut visit: impl FnMut(&mut dyn Iterator<Item = u64>)) {
        for (event, mapping) in self.0 {
            // Closes the event, so that nothing is added any more.
            drop(event);
            let head = mapping.u64(DATA_HEAD).load(Ordering::Acquire) as usize;
            // SAFETY: the kernel has stopped writing. No record was read before, so none wraps
            // around the end.
            let records = unsafe { mapping.bytes(page_size(), head.min(BUFFER)) };
            stacks(records, &mut visit);
        }
    }
}

/// Calls `visit` with the addresses of each sample among these records.
fn stacks(mut records: &[u8], visit: &mut impl FnMut(&mut dyn Iterator<Item = u64>)) {
    while let Some((header, _)) = records.split_first_chunk::<HEADER>() {
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let Some(body) = records.get(HEADER..size) else {
            return;
        };
        if kind == PERF_RECORD_SAMPLE {
            // The first word tells how many words follow.
            let words = body
                .chunks_exact(8)
                .skip(1)
                .filter_map(|word| Some(u64::from_ne_bytes(*word.first_chunk()?)));
            visit(&mut words.filter(|address| *address < MARKS));
        }
        records = &records[size.max(HEADER)..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_to_their_end() {
        let record = |kind: u32, words: &[u64]| {
            let mut bytes = kind.to_ne_bytes().to_vec();
            bytes.extend_from_slice(&[0, 0]);
            bytes.extend_from_slice(&(8 + 8 * words.len() as u16).to_ne_bytes());
            words
                .iter()
                .for_each(|word| bytes.extend_from_slice(&word.to_ne_bytes()));
            bytes
        };
        let kernel = 0u64.wrapping_sub(128);
        let mut records = record(PERF_RECORD_SAMPLE, &[3, kernel, 7, 8]);
        records.extend(record(5, &[1, 1]));
        records.extend(record(PERF_RECORD_SAMPLE, &[1, 9]));
        let cut = record(PERF_RECORD_SAMPLE, &[1, 10]);
        records.extend_from_slice(&cut[..12]);
        let mut found = Vec::new();
        stacks(&records, &mut |stack: &mut dyn Iterator<Item = u64>| {
            found.push(stack.collect::<Vec<_>>());
        });
        assert_eq!(found, [vec![7, 8], vec![9]]);
    }

    /// This test runs as root. An emulated CPU gets fewer samples in the same time, so the test
    /// continues until there are enough.
    #[test]
    fn a_busy_cpu_has_samples_in_the_kernel() {
        let start = std::time::Instant::now();
        let mut kernel = 0;
        while kernel <= 20 {
            assert!(start.elapsed().as_secs() < 30, "{kernel} samples");
            let sampler = Sampler::start().unwrap();
            let begun = std::time::Instant::now();
            // System calls: samples of programs themselves are left out.
            while begun.elapsed().as_millis() < 200 {
                let _ = rustix::fs::stat("/proc/self/status");
            }
            sampler.finish(|stack| {
                kernel += usize::from(stack.next().is_some_and(|address| address >> 63 == 1));
            });
        }
    }
}
