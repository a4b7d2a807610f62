//! A window on disk and its reader.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use twinprobe_ebpf_common::window::{Entry, Window};
use twinprobe_ebpf_common::{RawTable, Temporality};

use crate::file::format::{self, ChunkSpan, Unusable};
use crate::file::head::{ClosedBy, StoredMetric, WindowHead};
use crate::file::part::{Part, PartContent, ages_of};

/// A window that was committed. Its file may have been removed since.
#[derive(Debug)]
pub struct StoredWindow {
    /// The window as lists show it.
    pub entry: Entry,
    pub closed_by: ClosedBy,
    /// The windows of the probe, which set the file aside if it is damaged.
    files: Weak<dyn WindowFiles>,
}

/// The files that windows are read from.
pub trait WindowFiles: std::fmt::Debug + Send + Sync {
    /// Opens the file of a window.
    fn file(&self, seq: u64) -> io::Result<File>;

    /// Sets a file aside that can't be used, and counts its window as lost.
    fn set_aside(&self, seq: u64, reason: &str);
}

/// The reason why a window can't be read.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    #[error("the window has gone")]
    Gone,
    /// The file was set aside, and the window counts as lost.
    #[error("the file of the window is damaged: {0}")]
    Damaged(String),
    #[error("the file of the window can't be read")]
    Io(#[source] io::Error),
    /// The file has a later version and stays as it is.
    #[error("the file of the window can't be read: {0}")]
    Newer(String),
}

/// A window whose file is undamaged. The open file can be read to its end, even if it is renamed or removed meanwhile,
/// unless [`Self::close`] is called.
#[derive(Debug)]
pub struct WindowReader {
    file: Mutex<Option<Arc<File>>>,
    pub head: Arc<WindowHead>,
    chunks: Vec<Vec<ChunkSpan>>,
}

impl StoredWindow {
    pub fn new(head: &WindowHead, bytes: u64, files: Weak<dyn WindowFiles>) -> Self {
        let Window { seq, start, end, .. } = head.window.clone();
        Self { entry: Entry { seq, start, end, bytes }, closed_by: head.closed_by, files }
    }

    /// The number of the window.
    pub const fn seq(&self) -> u64 {
        self.entry.seq
    }

    /// Reads the whole file once to check its digest. A damaged file is set aside.
    pub fn open(&self) -> Result<WindowReader, WindowError> {
        let (files, seq) = (self.files.upgrade().ok_or(WindowError::Gone)?, self.seq());
        match files.file(seq).map_err(Unusable::Io).and_then(|file| open(file, seq)) {
            Ok(reader) => Ok(reader),
            Err(Unusable::Damaged(reason)) => {
                files.set_aside(seq, &reason);
                Err(WindowError::Damaged(reason))
            }
            Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                // Somebody else has removed the file, unless the window was acknowledged or dropped.
                files.set_aside(seq, "it is no longer there");
                Err(WindowError::Gone)
            }
            Err(Unusable::Io(error)) => Err(WindowError::Io(error)),
            Err(newer @ Unusable::Newer(..)) => Err(WindowError::Newer(newer.to_string())),
        }
    }
}

/// Examines `file`, which has to be the window with this number.
pub fn open(file: File, seq: u64) -> Result<WindowReader, Unusable> {
    let (head, chunks) = format::examine::<WindowHead>(&file)?;
    if head.window.seq != seq {
        return Err(Unusable::Damaged(format!("it is window {}", head.window.seq)));
    }
    Ok(WindowReader { file: Mutex::new(Some(Arc::new(file))), head: Arc::new(head), chunks })
}

impl WindowReader {
    /// Reads a chunk of a metric's rows; all chunks in order are its table. `None` after the last chunk.
    pub fn chunk(&self, metric: usize, index: usize) -> io::Result<Option<RawTable>> {
        let place = self.chunks.get(metric).and_then(|chunks| chunks.get(index));
        place.map(|&place| format::read_table(&*self.file()?, place)).transpose()
    }

    /// Returns the number of bytes that only this reader keeps on the disk: the size of a file that was removed.
    pub fn held(&self) -> u64 {
        let metadata = self.file().and_then(|file| file.metadata());
        metadata.map_or(0, |metadata| if metadata.nlink() == 0 { metadata.len() } else { 0 })
    }

    /// Gives the file up. Whoever reads the window gets an error from now on.
    pub fn close(&self) {
        *self.file.lock() = None;
    }

    fn file(&self) -> io::Result<Arc<File>> {
        let gone = || io::Error::other("it had to go, and was read too slowly");
        self.file.lock().clone().ok_or_else(gone)
    }

    /// Returns the sums of all windows up to this one, with the hidden sums.
    pub fn sums(&self) -> io::Result<Vec<Part>> {
        let file = self.file()?;
        let cumulative = |(_, metric): &(usize, &StoredMetric)| metric.reading == Temporality::Cumulative;
        let part = |(place, metric): (usize, &StoredMetric)| {
            Ok(Part {
                direction: metric.direction,
                map: metric.map.clone(),
                metric: Some(metric.name.clone()),
                content: PartContent::Sum,
                through: self.head.window.seq,
                layout: Arc::clone(&metric.layout),
                rows: format::read_all(&file, &self.chunks[place])?,
                ages: ages_of(&format::read_all(&file, &self.chunks[self.head.place_of_ages(place)])?),
                dropped: metric.dropped,
            })
        };
        self.head.all().enumerate().filter(cumulative).map(part).collect()
    }
}
