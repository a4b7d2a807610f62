//! The writer of a window.

use std::io::{self, Write};
use std::sync::{Arc, Weak};

use tempfile::NamedTempFile;
use twinprobe_ebpf_common::RawTable;

use crate::file::durable::Durable;
use crate::file::format::Encoder;
use crate::file::head::{ClosedBy, WindowHead};
use crate::file::stored::StoredWindow;
use crate::follow::Begun;
use crate::index::Change;
use crate::log::log::Ahead;
use crate::log::record::LONGEST;
use crate::state::State;
use crate::windows::Windows;

/// A window that nobody sees before it is committed. Dropping the writer removes the file.
#[derive(Debug)]
pub struct WindowWriter {
    windows: Arc<Windows>,
    encoder: Encoder<Draft>,
    window: StoredWindow,
    reports: u64,
}

/// A file that is being written. Its content is gathered before a write: all of it, unless it is too long for the log.
#[derive(Debug)]
struct Draft {
    file: NamedTempFile,
    /// The length of the file before the first write.
    before: u64,
    content: Vec<u8>,
    /// True if a part of the content is in the file only.
    is_long: bool,
}

impl Draft {
    fn write_out(&mut self) -> io::Result<()> {
        self.file.write_all(&self.content)
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.content.len() + bytes.len() > LONGEST {
            self.write_out()?;
            self.content.clear();
            self.is_long = true;
        }
        if bytes.len() > LONGEST {
            return self.file.write(bytes);
        }
        self.content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A window whose content is written, and perhaps not on disk to stay.
#[derive(Debug)]
#[must_use]
pub struct Filed {
    windows: Arc<Windows>,
    window: Arc<StoredWindow>,
    reports: u64,
    durable: Durable,
    /// The state with this window that the log has beside it.
    state: Option<State>,
}

/// A window on disk, and the changes of other files that follow from it.
#[derive(Debug)]
#[must_use]
pub struct Listed {
    windows: Arc<Windows>,
    window: Arc<StoredWindow>,
    change: Change,
    begun: Result<Begun, io::ErrorKind>,
    /// The records that the changes of files follow.
    ahead: Option<Ahead>,
}

impl Windows {
    /// Begins a window with this head, whose number has to be beyond all windows so far.
    pub fn write(self: &Arc<Self>, head: &WindowHead) -> io::Result<WindowWriter> {
        self.expect_open()?;
        WindowWriter::new(Arc::clone(self), head)
    }
}

impl WindowWriter {
    pub fn new(windows: Arc<Windows>, head: &WindowHead) -> io::Result<Self> {
        windows.expect_new(head.window.seq)?;
        let (file, before) = windows.directory.create_window()?;
        let draft = Draft { file, before, content: Vec::new(), is_long: false };
        let encoder = Encoder::new(draft, head)?;
        let window = StoredWindow::new(head, 0, Weak::clone(&windows.itself));
        Ok(Self { windows, encoder, window, reports: head.window.lost_windows })
    }

    /// Adds rows to the metric at this place of the head. Chunks of different metrics may alternate.
    pub fn rows(&mut self, metric: usize, chunk: &RawTable) -> io::Result<()> {
        self.encoder.rows(metric, chunk)
    }

    /// Returns when the window is on disk to stay. After an error there is no such window, and its number can be
    /// used again.
    pub fn commit(self) -> io::Result<Arc<StoredWindow>> {
        Ok(self.file()?.list()?.follow())
    }

    /// Writes the content. Several windows that are filed before the first is listed become durable by one sync.
    pub fn file(self) -> io::Result<Filed> {
        let Self { windows, encoder, mut window, reports } = self;
        let (mut draft, bytes) = encoder.finish()?;
        draft.write_out()?;
        window.entry.bytes = bytes;
        let Draft { file, before, content, is_long } = draft;
        if before > bytes {
            file.as_file().set_len(bytes)?;
        }
        let turn = windows.changes.lock();
        windows.expect_new(window.seq())?;
        let content = (!is_long).then_some(&*content);
        let state = windows.index.lock().state_with(&window, reports);
        let encoded = state.as_ref().and_then(|state| state.encode().ok());
        let durable = windows.directory.file_window(file, window.seq(), content, encoded.as_deref())?;
        let state = state.filter(|_| encoded.is_some() && matches!(durable, Durable::Noted { .. }));
        drop(turn);
        Ok(Filed { windows, window: Arc::new(window), reports, durable, state })
    }
}

impl Filed {
    /// Waits until the window is on disk to stay, and shows it. After an error there is no such window, and its number
    /// can be used again.
    pub fn list(self) -> io::Result<Listed> {
        let Self { windows, window, reports, durable, state } = self;
        let (file, ahead) = match durable {
            Durable::Synced => (None, None),
            Durable::Noted { file, ahead } => (Some(file), Some(ahead)),
        };
        let is_logged = ahead.as_ref().is_some_and(|ahead| ahead.wait().is_ok());
        let turn = windows.changes.lock();
        windows.expect_new(window.seq())?;
        if let Some(file) = file {
            let published = windows.directory.publish(file, window.seq(), is_logged);
            published.inspect_err(|_| windows.take_back(window.seq(), state.is_some()))?;
        }
        let change = windows.index.lock().insert(Arc::clone(&window), reports);
        let begun = windows.begin(&change, state.as_ref().map(|state| (state, is_logged)));
        windows.forget_old_baselines(window.seq());
        windows.newest.send_replace(window.seq());
        if let Some(told) = windows.told.as_ref().filter(|_| window.closed_by != ClosedBy::Page) {
            told.tell(&window.entry);
        }
        drop(turn);
        Ok(Listed { windows, window, change, begun, ahead })
    }
}

impl Listed {
    /// Removes the files of windows that had to go for the window.
    pub fn follow(self) -> Arc<StoredWindow> {
        let Self { windows, window, change, begun, ahead } = self;
        let _turn = windows.changes.lock();
        if !windows.index.lock().removed {
            // A failed save was logged, and the next change repeats it.
            let _ = windows.follow(&change, begun);
        }
        drop(ahead);
        window
    }
}
