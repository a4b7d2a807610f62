//! The writer of a window.

use std::io;
use std::sync::{Arc, Weak};

use twinprobe_ebpf_common::RawTable;
use twinprobe_store::Durable;

use crate::body::draft::BodyDraft;
use crate::body::format::Encoder;
use crate::body::head::{ClosedBy, WindowHead};
use crate::body::stored::{BodySource, StoredWindow};
use crate::windows::Windows;
use crate::windows::commit::Submitted;

/// A window that readers see after its commit. A drop of the writer forgets the window.
#[derive(Debug)]
pub struct WindowWriter {
    windows: Arc<Windows>,
    encoder: Encoder<BodyDraft>,
    window: StoredWindow,
    /// The window since which this window holds the changes; `None` if this window has whole sums.
    since: Option<u64>,
    /// The head, if later windows can hold the changes since this window.
    whole: Option<Arc<WindowHead>>,
}

/// A window that was handed to the store. Until the call of [`Self::list`], nothing else of the
/// probe can be changed.
#[derive(Debug)]
#[must_use]
pub struct Filed {
    windows: Arc<Windows>,
    window: Arc<StoredWindow>,
    whole: Option<Arc<WindowHead>>,
    submitted: Submitted,
}

impl Windows {
    /// Begins a window with this head. Its number must be larger than the numbers of all windows so
    /// far.
    pub fn write(self: &Arc<Self>, head: &WindowHead) -> io::Result<WindowWriter> {
        self.expect_new(head.window.seq)?;
        let draft = self.bodies.draft();
        let source: Weak<dyn BodySource> = Weak::<Self>::clone(&self.itself);
        let from = head
            .changes
            .as_ref()
            .map(|changes| self.from_of(changes.since))
            .transpose()?;
        let from = from.unwrap_or(head.window.seq);
        let window = StoredWindow {
            id: draft.id,
            from,
            ..StoredWindow::new(head, source)
        };
        let since = head.changes.as_ref().map(|changes| changes.since);
        let whole = head.has_whole_sums().then(|| Arc::new(head.clone()));
        let short = self.head_of_body(head, from);
        let encoder = Encoder::new(draft, short.as_ref().unwrap_or(head))?;
        Ok(WindowWriter {
            windows: Arc::clone(self),
            encoder,
            window,
            since,
            whole,
        })
    }
}

impl WindowWriter {
    /// Adds rows to the metric at this place of the head. Chunks of different metrics may
    /// alternate.
    pub fn rows(&mut self, metric: usize, chunk: &RawTable) -> io::Result<()> {
        self.encoder.rows(metric, chunk)
    }

    /// Returns after the window is synced to disk. After an error the window does not exist, and
    /// its number can be used again.
    pub fn commit(self) -> io::Result<Arc<StoredWindow>> {
        self.file()?.list()
    }

    /// Hands the window to the store. Several windows that are filed before the first is listed
    /// share one commit.
    pub fn file(self) -> io::Result<Filed> {
        let Self {
            windows,
            encoder,
            mut window,
            since,
            whole,
        } = self;
        let body = encoder.finish()?.0.finish()?;
        (window.entry.bytes, window.is_file) = (body.bytes, body.content.is_none());
        let window = Arc::new(window);
        let turn = windows.turn();
        windows.expect_new(window.seq())?;
        if let Some(since) = since {
            windows.from_of(since)?;
        }
        let change = windows.index.lock().insert(Arc::clone(&window));
        let submitted = windows.submit(turn, change, Some(body), Durable::Now);
        Ok(Filed {
            windows,
            window,
            whole,
            submitted,
        })
    }
}

impl Filed {
    /// Waits until the window is on disk, and shows it to readers. After an error the window does
    /// not exist, and its number can be used again.
    pub fn list(self) -> io::Result<Arc<StoredWindow>> {
        let Self {
            windows,
            window,
            whole,
            submitted,
        } = self;
        windows.finish(submitted)?;
        windows.note_stored(&window, whole);
        windows.newest.send_replace(window.seq());
        if let Some(told) = windows
            .told
            .as_ref()
            .filter(|_| window.closed_by != ClosedBy::Page)
        {
            told.tell(&window.entry);
        }
        Ok(window)
    }
}
