//! A window in the store and its reader.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use twinprobe_ebpf_common::field::wide::{SumWidth, convert_times, sums};
use twinprobe_ebpf_common::window::{Window, WindowEntry};
use twinprobe_ebpf_common::{MetricHead, RawTable, Render, TableChanges, TableLayout, Temporality};

use crate::body::content::Content;
use crate::body::draft::BodyDraft;
use crate::body::format::{self, BodyDigest, ChunkSpan, Unusable};
use crate::body::head::{ClosedBy, WindowHead};
use crate::body::part::{BaselinePart, PartContent, ages_of};
use crate::body::verified::{FileState, VerifiedBodies};

/// A window that was committed. The store may have removed the window since.
#[derive(Debug)]
pub struct StoredWindow {
    /// The window as lists show it.
    pub entry: WindowEntry,
    pub closed_by: ClosedBy,
    /// The instance of the probe that closed the window; empty for windows of earlier versions.
    pub instance: String,
    /// The number of the window with whole sums that begins this window's chain of changes. It is
    /// the window's own number if it has whole sums itself.
    pub from: u64,
    /// The number of lost windows that the window reports.
    pub reports: u64,
    pub id: i64,
    /// True if the body is a file.
    pub is_file: bool,
    /// The windows of the probe, which set the window aside if it is damaged.
    pub source: Weak<dyn BodySource>,
}

/// The source of the windows.
pub trait BodySource: std::fmt::Debug + Send + Sync {
    /// Opens the body of a window.
    fn content(&self, window: &StoredWindow) -> io::Result<Content>;

    /// The windows that this window builds on, oldest first: a window with whole sums, and then the
    /// windows with the changes.
    fn below(&self, window: &StoredWindow) -> Vec<Arc<StoredWindow>>;

    /// The bodies whose digest was compared with their content.
    fn verified(&self) -> &VerifiedBodies;

    /// The head of the window with whole sums that begins this window's chain of changes.
    fn whole_head(&self, window: &StoredWindow) -> Result<Arc<WindowHead>, Unusable>;

    /// Begins a body that only its reader has.
    fn copy(&self) -> BodyDraft;

    /// Sets an unusable window aside, and counts it as lost.
    fn set_aside(&self, window: &StoredWindow, reason: &str);

    /// Notes whether the last attempt to read a window succeeded.
    fn note_readable(&self, window: &StoredWindow, is_readable: bool);
}

/// The reason why a window can't be read.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    #[error("the window was removed")]
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

/// A window that is undamaged. A reader can read the whole window, even if the store removes it
/// during the reading, unless [`Self::close`] is called.
#[derive(Debug)]
pub struct WindowReader {
    content: Mutex<Option<Arc<Content>>>,
    pub head: Arc<WindowHead>,
    chunks: Vec<Vec<ChunkSpan>>,
}

impl StoredWindow {
    /// Creates the window with this head. The store sets the facts about its body later.
    pub fn new(head: &WindowHead, source: Weak<dyn BodySource>) -> Self {
        let Window {
            seq,
            start,
            end,
            lost_windows,
            ..
        } = head.window.clone();
        let instance = head
            .origin
            .as_ref()
            .map(|origin| origin.instance.clone())
            .unwrap_or_default();
        Self {
            entry: WindowEntry {
                seq,
                start,
                end,
                bytes: 0,
            },
            closed_by: head.closed_by,
            instance,
            from: seq,
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

    /// Examines the window's own content.
    pub fn read_alone(&self, source: &dyn BodySource) -> Result<WindowReader, Unusable> {
        self.read_content(source, source.content(self), BodyDigest::Unknown)
    }

    /// Examines a content, and completes the head in the content.
    pub fn read_content(
        &self,
        source: &dyn BodySource,
        content: io::Result<Content>,
        digest: BodyDigest,
    ) -> Result<WindowReader, Unusable> {
        let mut reader = examined(content.map_err(Unusable::Io)?, self.seq(), digest)?;
        if reader.head.described() > 0 {
            let whole = source.whole_head(self)?;
            let head = WindowHead::clone(&reader.head)
                .with_described(&whole)
                .ok_or_else(|| {
                    Unusable::Damaged(format!(
                        "window {}, which it builds on, has other metrics",
                        self.from
                    ))
                })?;
            reader.head = Arc::new(head);
        }
        Ok(reader)
    }

    /// Examines the window in its stored form: with whole sums, or with changes of sums. Does not
    /// set damaged windows aside.
    pub fn open_as_stored(&self) -> io::Result<WindowReader> {
        let source = self.source.upgrade().ok_or(io::ErrorKind::NotFound)?;
        self.read_alone(&*source).map_err(unread)
    }

    /// Does the same as [`Self::open_as_stored`] for a reader of all rows: a body of up to `most`
    /// bytes is read once, into memory. While the file of a body is unchanged, its digest is not
    /// compared again.
    pub fn open_at_once(&self, most: u64) -> io::Result<WindowReader> {
        let source = self.source.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let content = source.content(self)?;
        let state = FileState::of(&content);
        let is_known = state.is_some_and(|state| source.verified().knows(self.id, state));
        let content = if content.len()? <= most {
            content.into_memory()?
        } else {
            content
        };
        let digest = if is_known {
            BodyDigest::Compared
        } else {
            BodyDigest::Unknown
        };
        let reader = self
            .read_content(&*source, Ok(content), digest)
            .map_err(unread)?;
        if let Some(state) = state.filter(|_| !is_known) {
            source.verified().note(self.id, state);
        }
        Ok(reader)
    }
}

pub fn unread(error: Unusable) -> io::Error {
    match error {
        Unusable::Io(error) => error,
        error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
    }
}

/// Examines a body with its whole head, which must be that of the window with this number.
pub fn open(content: Content, seq: u64) -> Result<WindowReader, Unusable> {
    let reader = examined(content, seq, BodyDigest::Unknown)?;
    if reader.head.described() > 0 {
        return Err(Unusable::Damaged("it builds on no window".to_owned()));
    }
    Ok(reader)
}

fn examined(content: Content, seq: u64, digest: BodyDigest) -> Result<WindowReader, Unusable> {
    let (head, chunks) = format::examine::<WindowHead>(&content, digest)?;
    if head.window.seq != seq {
        return Err(Unusable::Damaged(format!(
            "it is window {}",
            head.window.seq
        )));
    }
    Ok(WindowReader {
        content: Mutex::new(Some(Arc::new(content))),
        head: Arc::new(head),
        chunks,
    })
}

impl WindowReader {
    /// Reads a chunk of a metric's rows; `None` after the last chunk. All chunks in order are the
    /// metric's table.
    pub fn chunk(&self, metric: usize, index: usize) -> io::Result<Option<RawTable>> {
        let place = self.chunks.get(metric).and_then(|chunks| chunks.get(index));
        place
            .map(|&place| format::read_table(&*self.content()?, place))
            .transpose()
    }

    /// Tells whether [`Self::chunk`] returns this chunk without a wait for a disk.
    pub fn is_at_hand(&self, metric: usize, index: usize) -> bool {
        let is_over = self
            .chunks
            .get(metric)
            .is_none_or(|chunks| index >= chunks.len());
        is_over
            || self
                .content()
                .is_ok_and(|content| matches!(*content, Content::Bytes(_)))
    }

    /// Calls `each` with the keys and values of each chunk of a metric's rows, if they are in
    /// memory and contain no tables. Otherwise it returns false, perhaps after calls for some
    /// chunks.
    pub fn each_flat(&self, metric: usize, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<bool> {
        let content = self.content()?;
        for &place in self.chunks.get(metric).map_or(&[][..], Vec::as_slice) {
            let Some((keys, values)) = format::flat_table(&content, place) else {
                return Ok(false);
            };
            each(keys, values);
        }
        Ok(true)
    }

    /// Reads the changes in the sum of the metric at this place; `None` if the window holds the
    /// sum.
    pub fn changes(&self, place: usize) -> io::Result<Option<TableChanges>> {
        if !self.has_changes(place) {
            return Ok(None);
        }
        self.changes_with(place, self.table(place)?).map(Some)
    }

    /// Does the same as [`Self::changes`], without keys and values; [`Self::each_flat`] reads
    /// these.
    pub fn places_of_changes(&self, place: usize) -> io::Result<TableChanges> {
        self.changes_with(place, RawTable::default())
    }

    fn changes_with(&self, place: usize, rows: RawTable) -> io::Result<TableChanges> {
        let places = self.table(self.head.place_of_changes(place))?;
        let changes = TableChanges::of_parts(rows, &places);
        changes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its changes are cut off"))
    }

    /// Tells whether the window holds only the changes in the sum of the metric at this place.
    pub fn has_changes(&self, place: usize) -> bool {
        self.head
            .changes
            .as_ref()
            .is_some_and(|changes| changes.places.contains(&place))
    }

    /// Reads all rows of the table at this place.
    pub fn table(&self, place: usize) -> io::Result<RawTable> {
        format::read_all(
            &*self.content()?,
            self.chunks.get(place).map_or(&[], Vec::as_slice),
        )
    }

    /// Returns the number of bytes that only this reader keeps on the disk: the size of a file that
    /// was removed.
    pub fn held(&self) -> u64 {
        match self.content().as_deref() {
            Ok(Content::File(file)) => {
                let metadata = file.metadata();
                metadata.map_or(0, |metadata| {
                    if metadata.nlink() == 0 {
                        metadata.len()
                    } else {
                        0
                    }
                })
            }
            _ => 0,
        }
    }

    /// Closes the window. A reader of it gets an error from now on.
    pub fn close(&self) {
        *self.content.lock() = None;
    }

    fn content(&self) -> io::Result<Arc<Content>> {
        let gone = || io::Error::other("it was removed, because the client read too slowly");
        self.content.lock().clone().ok_or_else(gone)
    }

    /// Returns the sums of all windows up to this one, with the hidden sums.
    pub fn sums(&self) -> io::Result<Vec<BaselinePart>> {
        let content = self.content()?;
        let cumulative =
            |(_, metric): &(usize, &MetricHead)| metric.temporality == Temporality::Cumulative;
        let part = |(place, metric): (usize, &MetricHead)| {
            let rows = format::read_all(&content, &self.chunks[place])?;
            let (layout, rows) = self.clocked(metric, rows);
            Ok(BaselinePart {
                direction: metric.direction,
                map: metric.map.clone(),
                metric: Some(metric.name.clone()),
                content: PartContent::Sum,
                through: self.head.window.seq,
                layout,
                rows,
                ages: ages_of(&format::read_all(
                    &content,
                    &self.chunks[self.head.place_of_ages(place)],
                )?),
                dropped: metric.dropped,
            })
        };
        self.head
            .all()
            .enumerate()
            .filter(cumulative)
            .map(part)
            .collect()
    }

    /// Converts the times of a sum that an earlier version has stored to the wall clock: the
    /// machine may have been booted since.
    fn clocked(&self, metric: &MetricHead, rows: RawTable) -> (Arc<TableLayout>, RawTable) {
        let layout = &metric.layout;
        if layout.value.renders(Render::Ktime) {
            let sum = sums(
                layout,
                &metric.series.merge.clone().unwrap_or_default(),
                SumWidth::Usual,
            );
            let tables = convert_times(&rows, layout, &sum, self.head.context.boot_time_ns);
            if let Some(rows) = tables.and_then(|mut tables| tables.pop()) {
                return (Arc::new(sum), rows);
            }
        }
        (Arc::clone(layout), rows)
    }
}
