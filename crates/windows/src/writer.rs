//! The writer of a window.

use std::io::{self, BufWriter};
use std::sync::{Arc, Weak};

use tempfile::NamedTempFile;
use twinprobe_ebpf_common::RawTable;

use crate::file::format::Encoder;
use crate::file::head::{ClosedBy, WindowHead};
use crate::file::stored::StoredWindow;
use crate::windows::Windows;

/// The number of bytes that are gathered before a write.
const BUFFER: usize = 256 * 1024;

/// A window that nobody sees before it is committed. Dropping the writer removes the file.
#[derive(Debug)]
pub struct WindowWriter {
    windows: Arc<Windows>,
    encoder: Encoder<BufWriter<NamedTempFile>>,
    window: StoredWindow,
    reports: u64,
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
        let file = BufWriter::with_capacity(BUFFER, windows.directory.create()?);
        let encoder = Encoder::new(file, head)?;
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
        let Self { windows, encoder, mut window, reports } = self;
        let (file, bytes) = encoder.finish()?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // The sync takes long and so happens before the lock is taken.
        file.as_file().sync_all()?;
        window.entry.bytes = bytes;
        let window = Arc::new(window);
        let turn = windows.changes.lock();
        windows.expect_new(window.seq())?;
        windows.directory.publish(file, window.seq())?;
        let change = windows.index.lock().insert(Arc::clone(&window), reports);
        // A failed save was logged, and the next change repeats it.
        let _ = windows.apply(&change);
        windows.forget_old_baselines(window.seq());
        windows.newest.send_replace(window.seq());
        if let Some(told) = windows.told.as_ref().filter(|_| window.closed_by != ClosedBy::Page) {
            told.tell(&window.entry);
        }
        drop(turn);
        Ok(window)
    }
}
