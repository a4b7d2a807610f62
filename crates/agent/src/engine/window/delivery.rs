//! Readings on their way to a client: windows on disk, and maps that nothing is taken out of. A window whose client went
//! away is given to the next one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use twinprobe_ebpf_common::{Context, Direction, Format, Head, RawTable, Window};
use twinprobe_exporter::{Cache, Metric};
use twinprobe_windows::{StoredMetric, StoredWindow, WindowError, WindowReader, Windows};

use crate::engine::error::Broken;
use crate::engine::window::live::{LiveMap, LiveRows};

/// One answer about one probe.
#[derive(Debug)]
pub struct Reading {
    pub probe: String,
    pub interfaces: Vec<String>,
    pub window: Option<Window>,
    pub context: Arc<Context>,
    /// What the probe's configuration prefers.
    pub format: Format,
    /// In the order of the document.
    pub parts: Vec<Part>,
    /// What OpenMetrics answers have left out before this one.
    pub skipped_before: u64,
    /// What OpenMetrics answers about this probe have left out so far.
    pub skipped: Arc<AtomicU64>,
}

/// One metric and where its rows come from.
#[derive(Debug)]
pub struct Part {
    pub direction: Direction,
    pub metric: Arc<Metric>,
    pub rows: Rows,
}

#[derive(Clone, Debug)]
pub enum Rows {
    /// A window on disk, and the metric's place in it.
    Stored(Arc<WindowReader>, usize),
    Live(LiveMap),
    /// There are none.
    None,
}

/// Windows that clients are taking now.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<BTreeSet<u64>>>);

/// One window of [`InFlight`].
#[derive(Debug)]
pub struct Claim {
    windows: InFlight,
    seq: u64,
}

/// One reading, and the window to be called taken once a client has all of it.
#[derive(Debug)]
pub struct Delivery {
    reading: Reading,
    window: Option<(Arc<Windows>, u64)>,
    _claim: Option<Claim>,
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
    Live(LiveRows),
    End,
}

impl InFlight {
    /// `None`: a client is taking it.
    pub fn claim(&self, seq: u64) -> Option<Claim> {
        let new = self.0.lock().insert(seq);
        new.then(|| Claim { windows: self.clone(), seq })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.windows.0.lock().remove(&self.seq);
    }
}

impl Part {
    /// The metric at this place of a stored window, as it was when the window was closed.
    pub fn stored(window: &Arc<WindowReader>, index: usize) -> Self {
        let StoredMetric { direction, name, map, help, agg, layout, reading, dropped } =
            window.metrics()[index].clone();
        let metric =
            Metric { name, map, help, agg, layout, temporality: reading, dropped, cache: Cache::default() };
        Self { direction, metric: Arc::new(metric), rows: Rows::Stored(Arc::clone(window), index) }
    }
}

impl Delivery {
    /// A reading that closed no window.
    pub const fn of_maps(reading: Reading) -> Self {
        Self { reading, window: None, _claim: None }
    }

    /// A retained window, as it was closed.
    pub fn of_window(
        windows: &Arc<Windows>,
        stored: &StoredWindow,
        skipped: Arc<AtomicU64>,
        claim: Option<Claim>,
    ) -> Result<Self, WindowError> {
        let reader = Arc::new(stored.open()?);
        let head = reader.head();
        let reading = Reading {
            probe: head.probe.clone(),
            interfaces: head.interfaces.clone(),
            window: Some(head.window.clone()),
            context: Arc::new(head.context.clone()),
            format: head.format,
            parts: (0..reader.metrics().len()).map(|index| Part::stored(&reader, index)).collect(),
            skipped_before: head.skipped_before,
            skipped,
        };
        Ok(Self { reading, window: Some((Arc::clone(windows), stored.seq())), _claim: claim })
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
        let Reading { probe, interfaces, window, .. } = &self.reading;
        Head { probe, interfaces, window: window.as_ref() }
    }

    /// The metric of this place in the document, and its rows from the first one.
    pub fn metric(&self, index: usize) -> Result<Option<MetricRows>, Broken> {
        let Some(Part { direction, metric, rows }) = self.reading.parts.get(index) else { return Ok(None) };
        let at = match rows {
            Rows::Stored(window, metric) => {
                At::Stored { window: Arc::clone(window), metric: *metric, next: 0 }
            }
            Rows::Live(map) => At::Live(map.clone().rows()?),
            Rows::None => At::End,
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
        self.window.iter().for_each(|(windows, seq)| windows.set_taken(*seq));
    }
}

impl Cursor {
    /// The next rows, as soon as they have been read; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Arc<RawTable>>, Broken> {
        match &mut self.0 {
            At::Live(rows) => rows.chunk().await,
            At::End => Ok(None),
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

    #[test]
    fn a_window_is_claimed_once_at_a_time() {
        let windows = InFlight::default();
        let claim = windows.claim(1);
        assert!(claim.is_some() && windows.claim(1).is_none() && windows.claim(2).is_some());
        drop(claim);
        assert!(windows.claim(1).is_some());
    }
}
