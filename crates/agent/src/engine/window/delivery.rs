//! Readings that clients receive: windows on disk, and maps that a reading leaves unchanged. If a
//! client disconnects, the next client gets its window.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_ebpf_common::{Context, DocumentOrigin, Format, Head, RawTable, Window};
use twinprobe_exporter::{Metric, window_shape};
use twinprobe_windows::{StoredWindow, WindowError, WindowReader, Windows};

use crate::engine::error::Broken;
use crate::engine::replay::replayed::RunningReplay;
use crate::engine::window::kept::{Keeping, Kept};
use crate::engine::window::live::{LiveMap, LiveRows};

/// One metric and the source of its rows.
#[derive(Debug)]
pub struct DocumentPart {
    pub metric: Arc<Metric>,
    pub rows: Rows,
}

#[derive(Clone, Debug)]
pub enum Rows {
    /// A window on disk, and the metric's place in it.
    Stored(Arc<WindowReader>, usize),
    Live(LiveMap),
    /// Rows of a live map that this reading has already read.
    Kept(Kept),
    /// Rows that several metrics show, and that a reading has removed from their map.
    Held(Arc<RawTable>),
    /// A metric without rows.
    None,
}

/// The windows that clients are receiving now.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<BTreeSet<u64>>>);

/// The claim of one client on a window of [`InFlight`].
#[derive(Debug)]
pub struct WindowClaim {
    windows: InFlight,
    seq: u64,
}

/// The answer to one request about one probe, and the window that counts as taken once a client has
/// received all of it.
#[derive(Debug)]
pub struct Delivery {
    pub probe: String,
    /// The origin of the numbers; `None` for windows of earlier versions.
    pub origin: Option<Arc<DocumentOrigin>>,
    pub interfaces: Vec<String>,
    /// The reasons why the numbers differ from those on the wire; `None` if they do not.
    pub approximate: Option<String>,
    pub subject: ReadingSubject,
    /// The facts about the machine that encoders need. Those of a stored window are from the time
    /// when the window was closed.
    pub context: Arc<Context>,
    /// The format that the probe's configuration prefers.
    pub format: Format,
    /// The metrics, in the order of the document.
    pub parts: Vec<DocumentPart>,
    /// The number of values that OpenMetrics answers have left out before this answer.
    pub skipped_before: u64,
    /// The number of values that OpenMetrics answers about this probe have left out so far.
    pub skipped: Arc<AtomicU64>,
}

/// The subject of a reading: a window, the present content of maps, or a capture.
#[derive(Debug)]
pub enum ReadingSubject {
    /// A window on disk, which counts as taken once the client has received everything.
    Window {
        window: Window,
        of: Arc<Windows>,
        _claim: Option<WindowClaim>,
    },
    /// The present content of maps, with the last window if there is one. No window counts as
    /// taken.
    Live { last: Option<Window> },
    /// The packets of a capture; `span` is the time that they cover.
    Replay {
        span: Option<Window>,
        replay: RunningReplay,
    },
}

/// The position of a client in the rows of one metric.
#[derive(Debug)]
pub enum Cursor {
    Stored {
        window: Arc<WindowReader>,
        metric: usize,
        next: usize,
    },
    Live(LiveRows),
    Kept(Kept),
    Held(Arc<RawTable>),
    End,
}

impl InFlight {
    /// Claims a window for a client; `None` if another client is receiving the window.
    pub fn claim(&self, seq: u64) -> Option<WindowClaim> {
        let new = self.0.lock().insert(seq);
        new.then(|| WindowClaim {
            windows: self.clone(),
            seq,
        })
    }
}

impl Drop for WindowClaim {
    fn drop(&mut self) {
        self.windows.0.lock().remove(&self.seq);
    }
}

impl DocumentPart {
    /// Returns the metric at this index of a stored window, as it was when the window was closed.
    pub fn stored(window: &Arc<WindowReader>, index: usize) -> Self {
        let metric = Arc::new(window.head.metrics[index].clone().into());
        Self {
            metric,
            rows: Rows::Stored(Arc::clone(window), index),
        }
    }
}

impl Rows {
    /// Returns the position before the first row. `keeping` is a place for the rows of a live map
    /// that are needed again: see [`Cursor::kept`].
    pub fn cursor(&self, keeping: impl FnOnce() -> Option<Keeping>) -> Result<Cursor, Broken> {
        Ok(match self {
            Self::Stored(window, metric) => Cursor::Stored {
                window: Arc::clone(window),
                metric: *metric,
                next: 0,
            },
            Self::Live(map) => Cursor::Live(map.clone().rows(keeping())?),
            Self::Kept(rows) => Cursor::Kept(rows.clone()),
            Self::Held(rows) => Cursor::Held(Arc::clone(rows)),
            Self::None => Cursor::End,
        })
    }
}

impl Delivery {
    /// Creates the delivery of a retained window, as it was when it was closed.
    pub fn of_window(
        windows: &Arc<Windows>,
        stored: &StoredWindow,
        skipped: Arc<AtomicU64>,
        claim: Option<WindowClaim>,
    ) -> Result<Self, WindowError> {
        let reader = Arc::new(stored.open()?);
        Ok(Self::new(windows, &reader, skipped, claim))
    }

    /// Makes the delivery of a retained window that was already opened.
    pub fn of_reader(
        windows: &Arc<Windows>,
        reader: &Arc<WindowReader>,
        skipped: Arc<AtomicU64>,
    ) -> Self {
        Self::new(windows, reader, skipped, None)
    }

    fn new(
        windows: &Arc<Windows>,
        reader: &Arc<WindowReader>,
        skipped: Arc<AtomicU64>,
        claim: Option<WindowClaim>,
    ) -> Self {
        let (head, of) = (&reader.head, Arc::clone(windows));
        Self {
            probe: head.probe.clone(),
            origin: head.origin.clone(),
            interfaces: head.interfaces.clone(),
            approximate: head.approximate.clone(),
            subject: ReadingSubject::Window {
                window: head.window.clone(),
                of,
                _claim: claim,
            },
            context: Arc::new(head.context.clone()),
            format: head.format,
            parts: (0..head.metrics.len())
                .map(|index| DocumentPart::stored(reader, index))
                .collect(),
            skipped_before: head.skipped_before,
            skipped,
        }
    }

    /// Returns the window that the document shows.
    pub fn window(&self) -> Option<&Window> {
        match &self.subject {
            ReadingSubject::Window { window, .. } => Some(window),
            ReadingSubject::Live { last: window } | ReadingSubject::Replay { span: window, .. } => {
                window.as_ref()
            }
        }
    }

    /// Returns the shape of the document in JSON. `has_owners` tells whether documents name the
    /// owners of addresses.
    pub fn shape(&self, has_owners: bool) -> WindowShape {
        window_shape(self.parts.iter().map(|part| &part.metric), has_owners)
    }

    /// Returns the number of the window that the reading shows.
    pub fn seq(&self) -> Option<u64> {
        self.window().map(|window| window.seq)
    }

    /// Returns the replay that the reading shows.
    pub const fn replay(&self) -> Option<&RunningReplay> {
        match &self.subject {
            ReadingSubject::Replay { replay, .. } => Some(replay),
            ReadingSubject::Window { .. } | ReadingSubject::Live { .. } => None,
        }
    }

    pub fn head(&self) -> Head<'_> {
        let Self {
            probe,
            origin,
            interfaces,
            approximate,
            ..
        } = self;
        Head {
            probe,
            origin: origin.as_deref(),
            interfaces,
            approximate: approximate.as_deref(),
            window: self.window(),
            replayed: self.replay().map(|replay| &replay.replayed),
        }
    }

    /// Returns the window on disk that the reading shows.
    pub fn stored(&self) -> Option<&Arc<WindowReader>> {
        self.parts.iter().find_map(|part| match &part.rows {
            Rows::Stored(window, _) => Some(window),
            Rows::Live(_) | Rows::Kept(_) | Rows::Held(_) | Rows::None => None,
        })
    }

    /// Adds `samples`, the number of values that this answer leaves out, to the count of the probe.
    pub fn skipped(&self, samples: u64) {
        self.skipped.fetch_add(samples, Ordering::Relaxed);
    }

    /// Replaces the metrics with those of an earlier window if both are equal, because the formats
    /// have already prepared the earlier ones. `metrics` becomes the list of this window's metrics.
    /// Returns true if the window's document has the same shape as the earlier one.
    pub fn share(&mut self, metrics: &mut Vec<Arc<Metric>>) -> bool {
        let before = std::mem::take(metrics);
        let mut is_alike = !before.is_empty() && before.len() == self.parts.len();
        for (index, part) in self.parts.iter_mut().enumerate() {
            match before.get(index) {
                Some(known) if ***known == **part.metric => part.metric = Arc::clone(known),
                known => is_alike &= known.is_some_and(|known| known.is_alike(&part.metric)),
            }
            metrics.push(Arc::clone(&part.metric));
        }
        is_alike
    }

    /// Marks the window as taken. Call this once the client has everything.
    pub fn complete(&self) {
        if let ReadingSubject::Window { window, of, .. } = &self.subject {
            of.set_taken(window.seq);
        }
    }
}

impl Cursor {
    /// Returns the rows of a live map with their place, after they were read completely; `None` if
    /// they are not kept.
    pub fn kept(&mut self) -> Option<(Rows, Keeping)> {
        match self {
            Self::Live(rows) => rows.kept().map(|(kept, place)| (Rows::Kept(kept), place)),
            Self::Stored { .. } | Self::Kept(_) | Self::Held(_) | Self::End => None,
        }
    }

    /// Returns the next rows, as soon as they have been read; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Arc<RawTable>>, Broken> {
        match self {
            Self::Live(rows) => rows.chunk().await,
            Self::Kept(rows) => {
                let chunk = rows.chunk().await;
                chunk.map_err(|error| {
                    Broken(format!("rows that were read before can't be read: {error}"))
                })
            }
            Self::Held(rows) => {
                let rows = Arc::clone(rows);
                *self = Self::End;
                Ok(Some(rows))
            }
            Self::End => Ok(None),
            Self::Stored {
                window,
                metric,
                next,
            } => {
                let (window, metric, index) = (Arc::clone(window), *metric, *next);
                *next += 1;
                // Another thread costs more than the rows of a small window.
                let chunk = if window.is_at_hand(metric, index) {
                    window.chunk(metric, index)
                } else {
                    let chunk =
                        tokio::task::spawn_blocking(move || window.chunk(metric, index)).await;
                    chunk.map_err(std::io::Error::other).and_then(|chunk| chunk)
                };
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
