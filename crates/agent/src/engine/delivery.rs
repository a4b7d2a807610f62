//! Readings on their way to a client. What was taken out of the kernel is kept until a client has taken all of
//! it; a reading whose client went away is given to the next one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use twinprobe_ebpf_common::RawTable;
use twinprobe_exporter::{Direction, Format, Head, Metric, Window};

use super::live::{LiveMap, LiveRows};
use super::spool::{Broken, Spool};

/// One answer about a probe, which may still be being taken out of the maps.
#[derive(Debug)]
pub struct Reading {
    pub(super) probe: String,
    pub(super) interfaces: Vec<String>,
    pub(super) window: Option<Window>,
    /// What the probe's configuration prefers.
    pub(super) format: Format,
    /// In the order of the document.
    pub(super) parts: Vec<Part>,
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
    Kept(Arc<Spool>),
    Live(LiveMap),
}

/// Readings that no client has taken to its end, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Undelivered(Arc<Mutex<Vec<Arc<Reading>>>>);

/// One reading and the duty to deliver it.
#[derive(Debug)]
pub struct Delivery {
    reading: Arc<Reading>,
    undelivered: Undelivered,
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
        Delivery { reading, undelivered: self.clone() }
    }

    pub fn again(&self, reading: &Arc<Reading>) -> Delivery {
        Delivery { reading: Arc::clone(reading), undelivered: self.clone() }
    }
}

impl Delivery {
    pub fn format(&self) -> Format {
        self.reading.format
    }

    pub fn head(&self) -> Head<'_> {
        let Reading { probe, interfaces, window, .. } = &*self.reading;
        Head { probe, interfaces, window: window.as_ref() }
    }

    /// The metric of this place in the document, and its rows from the first one.
    pub fn metric(&self, index: usize) -> Result<Option<MetricRows>, Broken> {
        let Some(Part { direction, metric, rows }) = self.reading.parts.get(index) else { return Ok(None) };
        let at = match rows {
            Rows::Kept(spool) => At::Kept(Arc::clone(spool), 0),
            Rows::Live(map) => At::Live(map.clone().rows()?),
        };
        Ok(Some(MetricRows { direction: *direction, metric: Arc::clone(metric), cursor: Cursor(at) }))
    }

    /// What earlier answers have left out.
    pub fn skipped_before(&self) -> u64 {
        self.reading.skipped.load(Ordering::Relaxed)
    }

    /// The answer leaves out this many samples.
    pub fn skipped(&self, samples: u64) {
        self.reading.skipped.fetch_add(samples, Ordering::Relaxed);
    }

    /// The client has taken everything.
    pub fn complete(&self) {
        let mut readings = self.undelivered.0.lock().unwrap_or_else(PoisonError::into_inner);
        readings.retain(|reading| !Arc::ptr_eq(reading, &self.reading));
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
            format: Format::Json,
            parts: Vec::new(),
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
}
