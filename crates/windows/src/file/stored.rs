//! A window on disk, and how it is read.

use std::fs::File;
use std::io;
use std::sync::{Arc, Weak};

use twinprobe_ebpf_common::RawTable;
use twinprobe_exporter::{Direction, Metric, Temporality};

use crate::baseline::{Part, PartContent, ages_of};
use crate::file::format::{self, Content, Place, Unusable};
use crate::file::head::{ClosedBy, StoredMetric, WindowHead};
use crate::windows::Windows;

/// A window that was committed. Its file may have gone since.
#[derive(Debug)]
pub struct StoredWindow {
    seq: u64,
    start: String,
    end: String,
    bytes: u64,
    closed_by: ClosedBy,
    /// Has to hear of a file that is damaged.
    windows: Weak<Windows>,
}

/// Why a window can't be read.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    #[error("the window has gone")]
    Gone,
    /// It was set aside and counts as lost.
    #[error("the file of the window is damaged: {0}")]
    Damaged(String),
    #[error("the file of the window can't be read")]
    Io(#[source] io::Error),
    /// The file has a later version and stays as it is.
    #[error("the file of the window can't be read: {0}")]
    Newer(String),
}

/// A window whose file is undamaged. It can be read to its end whatever becomes of it meanwhile.
#[derive(Debug)]
pub struct WindowReader {
    file: File,
    head: Arc<WindowHead>,
    metrics: Vec<(Direction, Arc<Metric>)>,
    chunks: Vec<Vec<Place>>,
    version: u8,
}

impl StoredWindow {
    pub fn new(head: &WindowHead, bytes: u64, windows: Weak<Windows>) -> Self {
        let WindowHead { window, closed_by, .. } = head;
        let (start, end) = (window.start.clone(), window.end.clone());
        Self { seq: window.seq, start, end, bytes, closed_by: *closed_by, windows }
    }

    pub fn of_size(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// RFC 3339.
    pub fn start(&self) -> &str {
        &self.start
    }

    /// RFC 3339.
    pub fn end(&self) -> &str {
        &self.end
    }

    /// Of its file.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub const fn closed_by(&self) -> ClosedBy {
        self.closed_by
    }

    /// Reads all of it once, to know that it is what was written. A file that is not is set aside.
    pub fn open(&self) -> Result<WindowReader, WindowError> {
        let windows = self.windows.upgrade().ok_or(WindowError::Gone)?;
        let read =
            windows.directory.open(self.seq).map_err(Unusable::Io).and_then(|file| open(file, self.seq));
        match read {
            Ok(reader) => Ok(reader),
            Err(Unusable::Damaged(reason)) => {
                windows.set_aside(self.seq, &reason);
                Err(WindowError::Damaged(reason))
            }
            Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                // Unless it was acknowledged or given up, somebody else has removed it.
                windows.set_aside(self.seq, "it is no longer there");
                Err(WindowError::Gone)
            }
            Err(Unusable::Io(error)) => Err(WindowError::Io(error)),
            Err(newer @ Unusable::Newer(..)) => Err(WindowError::Newer(newer.to_string())),
        }
    }
}

/// The window with this number, which `file` has to be.
pub fn open(file: File, seq: u64) -> Result<WindowReader, Unusable> {
    let Content { head, chunks, version } = format::examine::<WindowHead>(&file)?;
    if head.window.seq != seq {
        return Err(Unusable::Damaged(format!("it is window {}", head.window.seq)));
    }
    let metric = |stored: &StoredMetric| (stored.direction, Arc::new(stored.metric()));
    let metrics = head.metrics.iter().map(metric).collect();
    Ok(WindowReader { file, head: Arc::new(head), metrics, chunks, version })
}

impl WindowReader {
    pub const fn head(&self) -> &Arc<WindowHead> {
        &self.head
    }

    /// The format version of the file.
    pub const fn format(&self) -> u8 {
        self.version
    }

    /// In the order of the document.
    pub fn metrics(&self) -> Vec<(Direction, Arc<Metric>)> {
        self.metrics.clone()
    }

    /// A metric's rows, as they were written: one chunk after the other they are its table. `None` after the last.
    pub fn chunk(&self, metric: usize, index: usize) -> io::Result<Option<RawTable>> {
        let place = self.chunks.get(metric).and_then(|chunks| chunks.get(index));
        place.map(|&place| format::read_table(&self.file, place)).transpose()
    }

    /// Returns the sums of all windows up to this one, with the hidden sums.
    pub fn sums(&self) -> io::Result<Vec<Part>> {
        let cumulative = |(_, metric): &(usize, &StoredMetric)| metric.reading == Temporality::Cumulative;
        let part = |(place, metric): (usize, &StoredMetric)| {
            Ok(Part {
                direction: metric.direction,
                map: metric.map.clone(),
                content: PartContent::Sum,
                through: self.head.window.seq,
                layout: Arc::clone(&metric.layout),
                rows: format::read_all(&self.file, &self.chunks[place])?,
                ages: ages_of(&format::read_all(&self.file, &self.chunks[self.head.place_of_ages(place)])?),
                dropped: metric.dropped,
            })
        };
        self.head.all().enumerate().filter(cumulative).map(part).collect()
    }
}
