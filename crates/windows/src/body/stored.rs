//! A window in the store and its reader.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use twinprobe_ebpf_common::field::wide::{convert_times, sums};
use twinprobe_ebpf_common::window::{Entry, Window};
use twinprobe_ebpf_common::{RawTable, Render, TableLayout, Temporality};

use crate::body::content::Content;
use crate::body::format::{self, ChunkSpan, Unusable};
use crate::body::head::{ClosedBy, StoredMetric, WindowHead};
use crate::body::part::{Part, PartContent, ages_of};

/// A window that was committed. It may have gone since.
#[derive(Debug)]
pub struct StoredWindow {
    /// The window as lists show it.
    pub entry: Entry,
    pub closed_by: ClosedBy,
    /// The instance of the probe that closed the window; empty for windows of earlier versions.
    pub instance: String,
    /// The number of lost windows that the window reports.
    pub reports: u64,
    pub id: i64,
    /// True if the body is a file.
    pub is_file: bool,
    /// The windows of the probe, which set the window aside if it is damaged.
    pub source: Weak<dyn Source>,
}

/// What windows are read from.
pub trait Source: std::fmt::Debug + Send + Sync {
    /// Opens the body of a window.
    fn content(&self, window: &StoredWindow) -> io::Result<Content>;

    /// Sets a window aside that can't be used, and counts it as lost.
    fn set_aside(&self, window: &StoredWindow, reason: &str);

    /// Notes whether a window can be read.
    fn note_readable(&self, window: &StoredWindow, is_readable: bool);
}

/// The reason why a window can't be read.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    #[error("the window has gone")]
    Gone,
    /// The window was set aside, and counts as lost.
    #[error("the window is damaged: {0}")]
    Damaged(String),
    #[error("the window can't be read")]
    Io(#[source] io::Error),
    /// The body has a later version and stays as it is.
    #[error("the window can't be read: {0}")]
    Newer(String),
}

/// A window that is undamaged. It can be read to its end, even if it goes meanwhile, unless [`Self::close`] is called.
#[derive(Debug)]
pub struct WindowReader {
    content: Mutex<Option<Arc<Content>>>,
    pub head: Arc<WindowHead>,
    chunks: Vec<Vec<ChunkSpan>>,
}

impl StoredWindow {
    /// The window with this head; what the store makes of its body is not known yet.
    pub fn new(head: &WindowHead, source: Weak<dyn Source>) -> Self {
        let Window { seq, start, end, lost_windows, .. } = head.window.clone();
        let instance = head.origin.as_ref().map(|origin| origin.instance.clone()).unwrap_or_default();
        Self {
            entry: Entry { seq, start, end, bytes: 0 },
            closed_by: head.closed_by,
            instance,
            reports: lost_windows,
            id: 0,
            is_file: false,
            source,
        }
    }

    /// The number of the window.
    pub const fn seq(&self) -> u64 {
        self.entry.seq
    }

    /// Does the same as [`Self::open`], and changes nothing.
    pub fn examine(&self) -> io::Result<WindowReader> {
        let source = self.source.upgrade().ok_or(io::ErrorKind::NotFound)?;
        open(source.content(self)?, self.seq()).map_err(|error| match error {
            Unusable::Io(error) => error,
            error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        })
    }

    /// Reads the whole body once to check its digest. A damaged window is set aside.
    pub fn open(&self) -> Result<WindowReader, WindowError> {
        let source = self.source.upgrade().ok_or(WindowError::Gone)?;
        let opened = source.content(self).map_err(Unusable::Io).and_then(|content| open(content, self.seq()));
        source.note_readable(self, !matches!(opened, Err(Unusable::Newer(..))));
        match opened {
            Ok(reader) => Ok(reader),
            Err(Unusable::Damaged(reason)) => {
                source.set_aside(self, &reason);
                Err(WindowError::Damaged(reason))
            }
            Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                // Somebody else has removed the file, unless the window was acknowledged or dropped.
                source.set_aside(self, "its body is no longer there");
                Err(WindowError::Gone)
            }
            Err(Unusable::Io(error)) => {
                source.note_readable(self, false);
                Err(WindowError::Io(error))
            }
            Err(newer @ Unusable::Newer(..)) => Err(WindowError::Newer(newer.to_string())),
        }
    }
}

/// Examines a body, which has to be that of the window with this number.
pub fn open(content: Content, seq: u64) -> Result<WindowReader, Unusable> {
    let (head, chunks) = format::examine::<WindowHead>(&content)?;
    if head.window.seq != seq {
        return Err(Unusable::Damaged(format!("it is window {}", head.window.seq)));
    }
    Ok(WindowReader { content: Mutex::new(Some(Arc::new(content))), head: Arc::new(head), chunks })
}

impl WindowReader {
    /// Reads a chunk of a metric's rows; all chunks in order are its table. `None` after the last chunk.
    pub fn chunk(&self, metric: usize, index: usize) -> io::Result<Option<RawTable>> {
        let place = self.chunks.get(metric).and_then(|chunks| chunks.get(index));
        place.map(|&place| format::read_table(&*self.content()?, place)).transpose()
    }

    /// Returns the number of bytes that only this reader keeps on the disk: the size of a file that was removed.
    pub fn held(&self) -> u64 {
        match self.content().as_deref() {
            Ok(Content::File(file)) => {
                let metadata = file.metadata();
                metadata.map_or(0, |metadata| if metadata.nlink() == 0 { metadata.len() } else { 0 })
            }
            _ => 0,
        }
    }

    /// Gives the body up. Whoever reads the window gets an error from now on.
    pub fn close(&self) {
        *self.content.lock() = None;
    }

    fn content(&self) -> io::Result<Arc<Content>> {
        let gone = || io::Error::other("it had to go, and was read too slowly");
        self.content.lock().clone().ok_or_else(gone)
    }

    /// Returns the sums of all windows up to this one, with the hidden sums.
    pub fn sums(&self) -> io::Result<Vec<Part>> {
        let content = self.content()?;
        let cumulative = |(_, metric): &(usize, &StoredMetric)| metric.reading == Temporality::Cumulative;
        let part = |(place, metric): (usize, &StoredMetric)| {
            let rows = format::read_all(&content, &self.chunks[place])?;
            let (layout, rows) = self.clocked(metric, rows);
            Ok(Part {
                direction: metric.direction,
                map: metric.map.clone(),
                metric: Some(metric.name.clone()),
                content: PartContent::Sum,
                through: self.head.window.seq,
                layout,
                rows,
                ages: ages_of(&format::read_all(&content, &self.chunks[self.head.place_of_ages(place)])?),
                dropped: metric.dropped,
            })
        };
        self.head.all().enumerate().filter(cumulative).map(part).collect()
    }

    /// Sets the times of a sum that an earlier version has stored to the wall clock: the machine may have been booted since.
    fn clocked(&self, metric: &StoredMetric, rows: RawTable) -> (Arc<TableLayout>, RawTable) {
        let layout = &metric.layout;
        if layout.value.renders(Render::Ktime) {
            let sum = sums(layout, &metric.series.merge.clone().unwrap_or_default());
            let tables = convert_times(&rows, layout, &sum, self.head.context.boot_time_ns);
            if let Some(rows) = tables.and_then(|mut tables| tables.pop()) {
                return (Arc::new(sum), rows);
            }
        }
        (Arc::clone(layout), rows)
    }
}
