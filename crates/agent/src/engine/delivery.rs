//! Readings on their way to a client. What was taken out of the kernel is kept until a client has taken all of
//! it: windows on disk, the rest here. A reading whose client went away is given to the next one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use twinprobe_ebpf_common::RawTable;
use twinprobe_exporter::{Context, Direction, Format, Head, Metric, Window};
use twinprobe_windows::{StoredWindow, WindowError, WindowReader, Windows};

use super::live::{LiveMap, LiveRows};
use super::spool::{Broken, Spool};

/// One answer about one probe, which may still be being taken out of the maps.
#[derive(Debug)]
pub struct Reading {
    pub(super) probe: String,
    pub(super) interfaces: Vec<String>,
    pub(super) window: Option<Window>,
    pub(super) context: Arc<Context>,
    /// What the probe's configuration prefers.
    pub(super) format: Format,
    /// In the order of the document.
    pub(super) parts: Vec<Part>,
    /// What OpenMetrics answers have left out before this one.
    pub(super) skipped_before: u64,
    /// What OpenMetrics answers about this probe have left out so far.
    pub(super) skipped: Arc<AtomicU64>,
}

/// One metric and where its rows come from.
#[derive(Debug)]
pub(super) struct Part {
    pub direction: Direction,
    pub metric: Arc<Metric>,
    pub rows: Rows,
}

#[derive(Clone, Debug)]
pub(super) enum Rows {
    /// A window on disk, and the metric's place in it.
    Stored(Arc<WindowReader>, usize),
    Kept(Arc<Spool>),
    Live(LiveMap),
}

/// Readings that belong to no window and that no client has taken to its end, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Undelivered(Arc<Mutex<Vec<Arc<Reading>>>>);

/// Windows that clients are taking now.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<BTreeSet<u64>>>);

/// One window of [`InFlight`].
#[derive(Debug)]
pub(super) struct Claim {
    windows: InFlight,
    seq: u64,
}

/// One reading and what is to be done once a client has it.
#[derive(Debug)]
pub struct Delivery {
    reading: Arc<Reading>,
    duty: Duty,
}

#[derive(Debug)]
enum Duty {
    Forget(Undelivered),
    SetTaken { windows: Arc<Windows>, seq: u64, _claim: Option<Claim> },
}

/// One metric on its way to a client.
#[derive(Debug)]
pub struct MetricRows {
    pub direction: Direction,
    pub metric: Arc<Metric>,
    pub cursor: Cursor,
}

/// Where a client is in one metric.
#[derive(Debug)]
pub struct Cursor(At);

#[derive(Debug)]
enum At {
    Stored { window: Arc<WindowReader>, metric: usize, next: usize },
    Kept(Arc<Spool>, usize),
    Live(LiveRows),
}

impl Undelivered {
    /// The oldest reading that no client is taking now.
    pub fn abandoned(&self) -> Option<Delivery> {
        let readings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = readings.iter().find(|reading| Arc::strong_count(reading) == 1)?;
        Some(self.again(reading))
    }

    /// Hands out a reading; one that takes nothing out of the kernel need not be `kept`.
    pub fn deliver(&self, reading: Arc<Reading>, kept: bool) -> Delivery {
        if kept {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&reading));
        }
        Delivery { reading, duty: Duty::Forget(self.clone()) }
    }

    pub fn again(&self, reading: &Arc<Reading>) -> Delivery {
        Delivery { reading: Arc::clone(reading), duty: Duty::Forget(self.clone()) }
    }
}

impl InFlight {
    /// `None`: a client is taking it.
    pub fn claim(&self, seq: u64) -> Option<Claim> {
        let new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(seq);
        new.then(|| Claim { windows: self.clone(), seq })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.windows.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.seq);
    }
}

impl Delivery {
    /// A retained window, as it was closed.
    pub(super) fn of_window(
        windows: &Arc<Windows>,
        stored: &StoredWindow,
        skipped: Arc<AtomicU64>,
        claim: Option<Claim>,
    ) -> Result<Self, WindowError> {
        let reader = Arc::new(stored.open()?);
        let head = reader.head();
        let part = |(index, (direction, metric)): (usize, &(Direction, Arc<Metric>))| Part {
            direction: *direction,
            metric: Arc::clone(metric),
            rows: Rows::Stored(Arc::clone(&reader), index),
        };
        let reading = Reading {
            probe: head.probe.clone(),
            interfaces: head.interfaces.clone(),
            window: Some(head.window.clone()),
            context: Arc::new(head.context.clone()),
            format: head.format,
            parts: reader.metrics().iter().enumerate().map(part).collect(),
            skipped_before: head.skipped_before,
            skipped,
        };
        let duty = Duty::SetTaken { windows: Arc::clone(windows), seq: stored.seq(), _claim: claim };
        Ok(Self { reading: Arc::new(reading), duty })
    }

    pub fn format(&self) -> Format {
        self.reading.format
    }

    /// What renderings need to know of the machine; of a window, as it was when that was closed.
    pub fn context(&self) -> &Arc<Context> {
        &self.reading.context
    }

    /// The number of the window it is about.
    pub fn seq(&self) -> Option<u64> {
        self.reading.window.as_ref().map(|window| window.seq)
    }

    pub fn head(&self) -> Head<'_> {
        let Reading { probe, interfaces, window, .. } = &*self.reading;
        Head { probe, interfaces, window: window.as_ref() }
    }

    /// The metric of this place in the document, and its rows from the first one.
    pub fn metric(&self, index: usize) -> Result<Option<MetricRows>, Broken> {
        let Some(Part { direction, metric, rows }) = self.reading.parts.get(index) else { return Ok(None) };
        let at = match rows {
            Rows::Stored(window, metric) => {
                At::Stored { window: Arc::clone(window), metric: *metric, next: 0 }
            }
            Rows::Kept(spool) => At::Kept(Arc::clone(spool), 0),
            Rows::Live(map) => At::Live(map.clone().rows()?),
        };
        Ok(Some(MetricRows { direction: *direction, metric: Arc::clone(metric), cursor: Cursor(at) }))
    }

    /// In the order of the document.
    pub fn metrics(&self) -> impl Iterator<Item = (Direction, &Arc<Metric>)> {
        self.reading.parts.iter().map(|part| (part.direction, &part.metric))
    }

    /// What earlier answers have left out.
    pub fn skipped_before(&self) -> u64 {
        self.reading.skipped_before
    }

    /// The answer leaves out this many samples.
    pub fn skipped(&self, samples: u64) {
        self.reading.skipped.fetch_add(samples, Ordering::Relaxed);
    }

    /// The client has taken everything.
    pub fn complete(&self) {
        match &self.duty {
            Duty::Forget(undelivered) => {
                let mut readings = undelivered.0.lock().unwrap_or_else(PoisonError::into_inner);
                readings.retain(|reading| !Arc::ptr_eq(reading, &self.reading));
            }
            Duty::SetTaken { windows, seq, .. } => windows.set_taken(*seq),
        }
    }
}

impl Cursor {
    /// The next rows, as soon as they have been read; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Arc<RawTable>>, Broken> {
        match &mut self.0 {
            At::Live(rows) => rows.chunk().await,
            At::Kept(spool, next) => {
                let chunk = spool.chunk(*next).await?;
                *next += 1;
                Ok(chunk)
            }
            At::Stored { window, metric, next } => {
                let (window, metric, index) = (Arc::clone(window), *metric, *next);
                *next += 1;
                let chunk = tokio::task::spawn_blocking(move || window.chunk(metric, index)).await;
                let chunk = chunk.map_err(std::io::Error::other).and_then(|chunk| chunk);
                chunk
                    .map(|chunk| chunk.map(Arc::new))
                    .map_err(|error| Broken(format!("the window can't be read: {error}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(probe: &str) -> Arc<Reading> {
        Arc::new(Reading {
            probe: probe.into(),
            interfaces: Vec::new(),
            window: None,
            context: Arc::default(),
            format: Format::Json,
            parts: Vec::new(),
            skipped_before: 0,
            skipped: Arc::default(),
        })
    }

    #[test]
    fn what_was_not_taken_is_given_again_and_what_was_taken_is_not() {
        let undelivered = Undelivered::default();
        let first = undelivered.deliver(reading("1"), true);
        let second = undelivered.deliver(reading("2"), true);
        drop(undelivered.deliver(reading("live"), false));
        assert!(undelivered.abandoned().is_none(), "both are on their way");
        second.complete();
        drop((first, second));
        let again = undelivered.abandoned().expect("the first was given up");
        assert_eq!(again.head().probe, "1");
        again.complete();
        drop(again);
        assert!(undelivered.abandoned().is_none());
    }

    #[test]
    fn a_window_is_claimed_once_at_a_time() {
        let windows = InFlight::default();
        let claim = windows.claim(1);
        assert!(claim.is_some() && windows.claim(1).is_none() && windows.claim(2).is_some());
        drop(claim);
        assert!(windows.claim(1).is_some());
    }
}
