//! A generator that sends in the background.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{Generator, MAX_BATCH};

/// The largest number of packets per call: enough to make the cost of a call negligible.
const CHUNK: u64 = 1 << 20;
/// The number of packets of the first call, which may meet a program that takes a millisecond for
/// each.
const FIRST_CHUNK: u64 = 256;
/// The longest time of a call, which can't be stopped. Calls grow while they take less than half of
/// this, and shrink when they take longer.
const LONGEST_CALL: Duration = Duration::from_millis(200);
/// The time that the packets of one call cover at a fixed rate.
const PACE: Duration = Duration::from_millis(50);

/// The amount to send. The default never ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// The number of packets in total.
    pub count: Option<u64>,
    /// The packets per second, on average. The packets of each 50 ms come in one burst.
    pub rate: Option<u64>,
    pub duration: Option<Duration>,
}

/// A generator at work on a thread of its own. Stops on drop.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<Generator>>>,
}

impl Running {
    pub(super) fn start(mut generator: Generator, load: Load) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let thread = thread::spawn({
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            move || {
                drive(&mut generator, load, &stop, &sent)?;
                Ok(generator)
            }
        });
        Self {
            stop,
            sent,
            thread: Some(thread),
        }
    }

    /// Returns the number of packets of this run sent so far, by whole calls.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Returns how many sent packets the other end has certainly seen: its ring holds 256, and a
    /// batch may be under way.
    pub fn arrived(&self) -> u64 {
        self.sent().saturating_sub(256 + u64::from(MAX_BATCH))
    }

    /// Tells whether the load is done (or failed).
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops within about 0.2 s and returns how many packets this run sent.
    pub fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Release);
        self.join()
    }

    /// Waits for the load to be done and returns how many packets this run sent.
    pub fn join(self) -> Result<u64> {
        self.into_generator().map(|(_, sent)| sent)
    }

    /// Waits like [`Running::join`] and also returns the generator: its next run continues the
    /// spread.
    pub fn into_generator(mut self) -> Result<(Generator, u64)> {
        let thread = self.thread.take().expect("joined once");
        let generator = thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((generator, self.sent()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn drive(generator: &mut Generator, load: Load, stop: &AtomicBool, sent: &AtomicU64) -> Result<()> {
    let start = Instant::now();
    let mut total = 0;
    let mut most = FIRST_CHUNK;
    while !stop.load(Ordering::Acquire) && load.duration.is_none_or(|limit| start.elapsed() < limit)
    {
        let left = load.count.map_or(u64::MAX, |count| count - total);
        if left == 0 {
            break;
        }
        let due = match load.rate {
            None => most,
            Some(rate) => {
                let due = (start.elapsed() + PACE).as_nanos() * u128::from(rate) / 1_000_000_000;
                u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(total)
            }
        };
        if due > 0 {
            let chunk = due.min(left).min(most);
            let begun = Instant::now();
            generator.send(chunk)?;
            total += chunk;
            if begun.elapsed() > LONGEST_CALL {
                most = (most / 2).max(FIRST_CHUNK);
            } else if chunk == most && begun.elapsed() < LONGEST_CALL / 2 {
                most = (most * 2).min(CHUNK);
            }
            sent.store(total, Ordering::Release);
        }
        if load.rate.is_some_and(|rate| {
            u128::from(total) * 1_000_000_000 > start.elapsed().as_nanos() * u128::from(rate)
        }) {
            thread::sleep(PACE / 2);
        }
    }
    Ok(())
}
