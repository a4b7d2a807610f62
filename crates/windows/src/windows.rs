//! Windows on disk, kept until they are acknowledged:
//!
//! | file in `windows/PROBE/` | |
//! |---|---|
//! | `SEQ.window` | a window nobody has acknowledged |
//! | `SEQ.taken` | the same, and the client that had it closed has all of it |
//! | `SEQ.acked` | the newest window, acknowledged: kept until the next one |
//! | `SEQ.damaged` | what was found not to be what was written |
//! | `SEQ.lost` | empty: a window that had to go while there was no room to write that down in `state.json` |
//! | `SEQ.SERIAL.baseline` | the base of the open window, see [`baseline`] |
//! | `state.json` | which windows were lost, who has acknowledged what |
//! | `state.damaged` | what took its place and can't be read |
//!
//! `state.json` is written before the files follow it; a start goes on with what a crash has left in between
//! ([`restore`]). Where there is no room for it the files go first, and their names say why: a full disk does not
//! keep windows from making room.
//!
//! A file that can't be read, or that a later version has written, stays as it is and is reported. This holds for the
//! file of a single window; if the file is `state.json`, nothing in the whole directory is changed until it can be read
//! ([`blocked`]).

#[cfg(test)]
pub mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;
pub use twinprobe_ebpf_common::window::{Entry, Listing, Statistics};

use crate::file::directory::{Directory, Form};
use crate::file::head::WindowHead;
use crate::file::stored::StoredWindow;
use crate::index::{Change, Index};
use crate::restore;
use crate::writer::WindowWriter;

/// Files that are set aside, for somebody to look at.
pub const DAMAGED_FILES: usize = 8;

/// The windows of one probe; they outlive its replacement. Its methods wait for the disk, but for those that
/// only ask.
#[derive(Debug)]
pub struct Windows {
    pub directory: Directory,
    /// One change at a time, and the files follow before the next. Taken before `index`.
    pub changes: Mutex<()>,
    /// Nobody waits for the disk while holding it.
    pub index: Mutex<Index>,
    pub newest: watch::Sender<u64>,
    pub itself: Weak<Self>,
}

/// How much is retained, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Windows; the newest stays in any case.
    pub retain: usize,
    /// Of their files.
    pub bytes: u64,
    /// Who all have to acknowledge a window.
    pub collectors: Vec<String>,
    /// Whether a window that the client that had it closed has all of is not lost when it goes.
    pub taken_counts: bool,
}

impl Default for Limits {
    /// Nothing goes.
    fn default() -> Self {
        Self { retain: usize::MAX, bytes: u64::MAX, collectors: Vec::new(), taken_counts: false }
    }
}

/// Why a window can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("there never was such a window")]
    Never,
    #[error("the window was acknowledged")]
    Acknowledged,
    #[error("the window was lost: it had to go, or its file was damaged, before it was acknowledged")]
    Lost,
    #[error("the file of the window can't be read and stays as it is")]
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    #[error("the newest window is {newest}")]
    Beyond { newest: u64 },
    #[error("no collector is called {0}")]
    UnknownCollector(String),
    /// It holds until the daemon ends; saying it again tries again.
    #[error("it could not be written down: {0}")]
    NotWritten(io::ErrorKind),
}

impl Windows {
    /// Reads all there is. What can't be read is logged and set aside.
    pub fn open(path: PathBuf) -> Arc<Self> {
        Self::open_in(Directory::new(path))
    }

    fn open_in(directory: Directory) -> Arc<Self> {
        Arc::new_cyclic(|itself| {
            let index = restore::restore(&directory, itself);
            let newest = watch::Sender::new(index.state.last);
            let itself = Weak::clone(itself);
            Self { directory, changes: Mutex::default(), index: Mutex::new(index), newest, itself }
        })
    }

    /// A file for the window of this head, whose number has to be beyond all there were.
    pub fn write(self: &Arc<Self>, head: &WindowHead) -> io::Result<WindowWriter> {
        self.expect_open()?;
        WindowWriter::new(Arc::clone(self), head)
    }

    pub fn set_limits(&self, limits: Limits) {
        let _turn = lock(&self.changes);
        if self.unblock().is_err() {
            // The limits hold once the directory can be read.
            lock(&self.index).limits = limits;
            return;
        }
        let change = lock(&self.index).set_limits(limits);
        // What could not be written down was logged, and is with the next change.
        let _ = self.apply(&change);
    }

    /// All windows up to `seq`, for one collector or for all.
    pub fn acknowledge(&self, seq: u64, collector: Option<&str>) -> Result<(), AckError> {
        let _turn = lock(&self.changes);
        self.unblock().map_err(|error| AckError::NotWritten(error.kind()))?;
        let change = lock(&self.index).acknowledge(seq, collector)?;
        self.apply(&change).map_err(AckError::NotWritten)
    }

    /// The last window that a collector has acknowledged.
    pub fn acknowledged(&self, collector: &str) -> Result<u64, AckError> {
        lock(&self.index).acknowledged(collector)
    }

    /// The client that had the window closed has all of it.
    pub fn set_taken(&self, seq: u64) {
        let _turn = lock(&self.changes);
        if self.unblock().is_err() {
            return;
        }
        let taken = lock(&self.index).take(seq);
        if let Some(form) = taken
            && self.directory.rename(seq, form, Form::Taken)
        {
            lock(&self.index).renamed(seq, Form::Taken);
        }
    }

    /// Windows that clients had closed and did not take all of, oldest first.
    pub fn untaken(&self) -> Vec<Arc<StoredWindow>> {
        lock(&self.index).untaken()
    }

    /// Makes room: the oldest window goes, unless there is no newer one.
    pub fn drop_oldest(&self) -> bool {
        let _turn = lock(&self.changes);
        if self.unblock().is_err() {
            return false;
        }
        let mut change = Change::default();
        let dropped = lock(&self.index).drop_oldest(&mut change);
        // What could not be written down was logged, and is with the next change.
        let _ = self.apply(&change);
        dropped
    }

    /// The retained windows after `after`.
    pub fn list(&self, after: u64) -> Listing {
        lock(&self.index).list(after)
    }

    pub fn get(&self, seq: u64) -> Result<Arc<StoredWindow>, Missing> {
        self.look_again(seq);
        lock(&self.index).get(seq)
    }

    /// The newest that can be read, acknowledged or not.
    pub fn newest(&self) -> Option<Arc<StoredWindow>> {
        lock(&self.index).newest().cloned()
    }

    /// The maps still hold the last window: if its file was damaged, it can be written again.
    pub fn reclaim(&self, seq: u64) {
        lock(&self.index).reclaim(seq);
    }

    /// Whether the window was ever committed, whatever has become of it.
    #[cfg(test)]
    pub fn contains(&self, seq: u64) -> bool {
        !matches!(lock(&self.index).get(seq), Err(Missing::Never))
    }

    /// Of the newest window that was ever committed, whatever has become of it; 0: there was none. The next one
    /// has to be beyond it, after a reboot, too.
    pub fn last_seq(&self) -> u64 {
        lock(&self.index).state.last
    }

    /// How many lost windows the next window has to report. Committing it takes note of what its head says.
    pub fn unreported_lost(&self) -> u64 {
        lock(&self.index).unreported()
    }

    /// The number of the newest window, and when there is another.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub fn statistics(&self) -> Statistics {
        lock(&self.index).statistics()
    }

    pub fn expect_new(&self, seq: u64) -> io::Result<()> {
        let index = lock(&self.index);
        if index.removed {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the probe was removed"));
        }
        if let Some(reason) = index.unreadable(seq) {
            let reason = format!("there is a file of window {seq} that can't be read: {reason}");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        }
        if seq <= index.state.last {
            let newest = index.state.last;
            let reason = format!("window {seq} would come after window {newest}");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        }
        Ok(())
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
