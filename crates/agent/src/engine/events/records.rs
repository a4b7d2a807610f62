//! Records that were taken out of a ring and are rendered later. A burst fills a ring in less time
//! than its events take to render; copying them takes a fraction of that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use twinprobe_kernel::EventRecord;

/// The most bytes that are kept for one source, in addition to the bytes of one look at its rings.
/// Further records stay in the rings.
const LIMIT: usize = 4 << 20;
/// The most bytes that are kept for all sources together.
const LIMIT_OF_ALL: usize = 16 << 20;
/// The size of a piece of memory. It is large enough for the allocator to return it to the kernel
/// when it is freed.
const CHUNK: usize = 256 << 10;
/// The size of the header before the bytes of a record: the time of the reading, the CPU and the
/// length.
const HEADER: usize = 16;
/// The CPU of a record whose ring does not record the CPU.
const NO_CPU: u32 = u32::MAX;
/// The length of a record of lost events. Their number follows.
const LOST: u32 = u32::MAX;

/// The number of bytes of memory that the records of all sources take; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<AtomicUsize>);

/// The records of one source, in their order.
#[derive(Debug, Default)]
pub struct Records {
    chunks: VecDeque<Vec<u8>>,
    /// The position of the first record in the first chunk.
    position: usize,
    /// Chunks that were read and can be written again.
    spare: Vec<Vec<u8>>,
    /// The size of all chunks, as it was reported to `budget`.
    taken: usize,
    budget: Budget,
}

impl Records {
    pub fn new(budget: Budget) -> Self {
        Self {
            chunks: VecDeque::new(),
            position: 0,
            spare: Vec::new(),
            taken: 0,
            budget,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the number of bytes of memory that may still be filled.
    pub fn room(&self) -> usize {
        let waiting: usize = self.chunks.iter().map(Vec::capacity).sum();
        let all = LIMIT_OF_ALL.saturating_sub(self.budget.0.load(Ordering::Relaxed));
        LIMIT
            .saturating_sub(waiting)
            .min(all + self.spare.len() * CHUNK)
    }

    /// Appends a record that was read at this time.
    pub fn push(&mut self, record: EventRecord<'_>, time: Timestamp) {
        let lost;
        let (cpu, len, bytes) = match record {
            EventRecord::Sample { cpu, bytes } => {
                (cpu.unwrap_or(NO_CPU), bytes.len() as u32, bytes)
            }
            EventRecord::Lost { cpu, count } => {
                lost = count.to_ne_bytes();
                (cpu, LOST, &lost[..])
            }
        };
        let size = HEADER + bytes.len();
        if self
            .chunks
            .back()
            .is_none_or(|chunk| chunk.capacity() - chunk.len() < size)
        {
            self.add(size);
        }
        if let Some(chunk) = self.chunks.back_mut() {
            let time = time.as_nanosecond() as i64;
            let mut header = [0; HEADER];
            header[..8].copy_from_slice(&time.to_ne_bytes());
            header[8..12].copy_from_slice(&cpu.to_ne_bytes());
            header[12..].copy_from_slice(&len.to_ne_bytes());
            chunk.extend_from_slice(&header);
            chunk.extend_from_slice(bytes);
        }
    }

    /// Passes on the records in order, until `limit` bytes were read or no record is left.
    pub fn read(&mut self, limit: usize, mut sink: impl FnMut(EventRecord<'_>, Timestamp)) {
        let mut read = 0;
        while read < limit
            && let Some(chunk) = self.chunks.front()
        {
            let before = self.position;
            while read + self.position - before < limit
                && let Some((header, rest)) = chunk[self.position..].split_first_chunk::<HEADER>()
            {
                let word =
                    |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| header[at + byte]));
                let (cpu, len) = (word(8), word(12));
                let time = i64::from_ne_bytes(std::array::from_fn(|byte| header[byte]));
                let time = Timestamp::from_nanosecond(time.into()).unwrap_or_default();
                let size = if len == LOST { 8 } else { len as usize };
                let bytes = &rest[..size];
                let record = match bytes.first_chunk() {
                    Some(count) if len == LOST => EventRecord::Lost {
                        cpu,
                        count: u64::from_ne_bytes(*count),
                    },
                    _ => EventRecord::Sample {
                        cpu: (cpu != NO_CPU).then_some(cpu),
                        bytes,
                    },
                };
                sink(record, time);
                self.position += HEADER + size;
            }
            read += self.position - before;
            if self.position == chunk.len() {
                self.position = 0;
                if let Some(mut chunk) = self.chunks.pop_front() {
                    chunk.clear();
                    if chunk.capacity() == CHUNK {
                        self.spare.push(chunk);
                    } else {
                        self.give(chunk.capacity());
                    }
                }
            }
        }
    }

    /// Tells whether there is unused memory.
    pub fn is_large(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Releases the unused memory.
    pub fn shrink(&mut self) {
        let size = self.spare.drain(..).map(|chunk| chunk.capacity()).sum();
        self.give(size);
    }

    fn add(&mut self, size: usize) {
        let spare = if size <= CHUNK {
            self.spare.pop()
        } else {
            None
        };
        self.chunks.push_back(spare.unwrap_or_else(|| {
            let chunk = Vec::with_capacity(size.max(CHUNK));
            self.taken += chunk.capacity();
            self.budget.0.fetch_add(chunk.capacity(), Ordering::Relaxed);
            chunk
        }));
    }

    fn give(&mut self, size: usize) {
        self.taken -= size;
        self.budget.0.fetch_sub(size, Ordering::Relaxed);
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn records_come_out_as_they_went_in() {
        let mut records = Records::new(Budget::default());
        let large = vec![7; 2 * CHUNK];
        let sizes = [0, 1, 8, CHUNK - HEADER, 100, large.len(), 3];
        for (second, size) in sizes.into_iter().enumerate() {
            let cpu = (second % 2 == 0).then_some(second as u32);
            records.push(
                EventRecord::Sample {
                    cpu,
                    bytes: &large[..size],
                },
                time(second as i64),
            );
        }
        records.push(
            EventRecord::Lost {
                cpu: 3,
                count: u64::MAX,
            },
            time(99),
        );
        let mut seen = Vec::new();
        while !records.is_empty() {
            records.read(1, |record, time| {
                seen.push(match record {
                    EventRecord::Sample { cpu, bytes } => {
                        (cpu, bytes.len() as u64, time.as_second())
                    }
                    EventRecord::Lost { cpu, count } => (Some(cpu), count, time.as_second()),
                });
            });
        }
        let expected = sizes.into_iter().enumerate().map(|(second, size)| {
            (
                (second % 2 == 0).then_some(second as u32),
                size as u64,
                second as i64,
            )
        });
        assert_eq!(
            seen,
            expected
                .chain([(Some(3), u64::MAX, 99)])
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn memory_has_a_limit_and_is_given_back() {
        let budget = Budget::default();
        let taken = || budget.0.load(Ordering::Relaxed);
        let fill = || {
            let mut records = Records::new(budget.clone());
            while records.room() > 0 {
                records.push(
                    EventRecord::Sample {
                        cpu: None,
                        bytes: &[0; 1000],
                    },
                    time(0),
                );
            }
            records
        };
        let mut first = fill();
        assert_eq!(taken(), LIMIT);
        let others: Vec<_> = (1..LIMIT_OF_ALL / LIMIT).map(|_| fill()).collect();
        assert_eq!(
            (taken(), fill().is_empty()),
            (LIMIT_OF_ALL, true),
            "nothing is left for another source"
        );
        // Memory that was read is written again.
        first.read(usize::MAX, |_, _| {});
        assert_eq!(
            (first.is_empty(), first.room(), taken()),
            (true, LIMIT, LIMIT_OF_ALL)
        );
        first.shrink();
        assert_eq!(taken(), LIMIT_OF_ALL - LIMIT);
        drop(others);
        assert_eq!(taken(), 0);
    }
}
