//! Windows on disk, kept until they are acknowledged:
//!
//! | file in `windows/PROBE/` | |
//! |---|---|
//! | `SEQ.window` | a window nobody has acknowledged |
//! | `SEQ.taken` | the same, and the client that had it closed has all of it |
//! | `SEQ.acked` | the newest window, acknowledged: kept until the next one |
//! | `SEQ.damaged` | what was found not to be what was written; empty where there was no room for it and for the state |
//! | `SEQ.lost` | empty: a window that had to go while there was no room to write that down in `state.json` |
//! | `SEQ.SERIAL.baseline` | the base of the open window, see [`baseline`] |
//! | `state.json` | which windows were lost, who has acknowledged what |
//! | `state.damaged` | what took its place and can't be read |
//! | `.new-*` | a file that is being written, or that waits to be written again ([`spare`](crate::file::spare)) |
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
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
pub use twinprobe_ebpf_common::window::{Listing, Statistics};

use crate::file::directory::{Directory, Form};
use crate::file::head::ClosedBy;
use crate::file::stored::{StoredWindow, WindowFiles};
use crate::index::{Change, Index};
use crate::restore;
use crate::retention::{AckError, Limits, Missing};
use crate::told::Told;

/// The windows of one probe; they outlive its replacement. Methods wait for the disk, except those that only query.
#[derive(Debug)]
pub struct Windows {
    pub directory: Directory,
    /// The lock under which a change is decided and its files are changed, before the next change. Taken before
    /// `index`.
    pub changes: Mutex<()>,
    /// The index. Nobody waits for the disk while holding this lock.
    pub index: Mutex<Index>,
    /// The number of the newest window that was ever committed.
    pub newest: watch::Sender<u64>,
    pub itself: Weak<dyn WindowFiles>,
    /// The room on the file system that windows leave free, in bytes.
    keep_free: u64,
    /// The instant until which there is so much room that nobody has to look again.
    roomy_until: Mutex<Option<Instant>>,
    /// `None` if nobody is to be told.
    pub told: Option<Told>,
}

/// The part of a small file system that windows leave free, where `keep_free` is more.
const KEEP_FREE_PART: u64 = 20;

/// The free room in bytes, beyond what is needed, with which the clock's next windows are not looked at, and for how long.
const ROOMY: u64 = 1 << 30;
const ROOMY_FOR: Duration = Duration::from_millis(100);

impl Windows {
    /// Opens the directory and reads every file. Damaged files are logged and set aside.
    #[cfg(test)]
    pub fn open(path: std::path::PathBuf) -> Arc<Self> {
        Self::open_in(Directory::new(path), 0, None)
    }

    /// Does the same; windows leave `keep_free` bytes of the file system free, but no more than a twentieth of it.
    pub fn open_in(directory: Directory, keep_free: u64, told: Option<Told>) -> Arc<Self> {
        Arc::new_cyclic(|itself| {
            let files: Weak<dyn WindowFiles> = Weak::<Self>::clone(itself);
            let index = restore::restore(&directory, &files);
            let newest = watch::Sender::new(index.state.last);
            Self {
                directory,
                changes: Mutex::default(),
                index: Mutex::new(index),
                newest,
                itself: files,
                keep_free,
                roomy_until: Mutex::default(),
                told,
            }
        })
    }

    /// Sets the limits and drops the windows that exceed them.
    pub fn set_limits(&self, limits: Limits) {
        let _turn = self.changes.lock();
        if self.unblock().is_err() {
            // The limits hold once the directory can be read.
            self.index.lock().limits = limits;
            return;
        }
        let change = self.index.lock().set_limits(limits);
        // A failed save was logged, and the next change repeats it.
        let _ = self.apply(&change);
    }

    /// Acknowledges all windows up to `seq`, for one collector or for all.
    pub fn acknowledge(&self, seq: u64, collector: Option<&str>) -> Result<(), AckError> {
        let _turn = self.changes.lock();
        self.unblock().map_err(|error| AckError::NotWritten(error.kind()))?;
        let change = self.index.lock().acknowledge(seq, collector)?;
        self.apply(&change).map_err(AckError::NotWritten)
    }

    /// The last window that a collector has acknowledged.
    pub fn acknowledged(&self, collector: &str) -> Result<u64, AckError> {
        self.index.lock().acknowledged(collector)
    }

    /// Records that the client that closed the window has received all of it.
    pub fn set_taken(&self, seq: u64) {
        let _turn = self.changes.lock();
        if self.unblock().is_err() {
            return;
        }
        let taken = self.index.lock().take(seq);
        if let Some(form) = taken
            && self.directory.rename(seq, form, Form::Taken)
        {
            self.index.lock().renamed(seq, Form::Taken);
        }
    }

    /// Returns the windows that clients had closed and did not take to their end, oldest first.
    pub fn untaken(&self) -> Vec<Arc<StoredWindow>> {
        self.index.lock().untaken()
    }

    /// Makes room by dropping the oldest window, unless it is the only one. Returns false if none was dropped.
    pub fn drop_oldest(&self) -> bool {
        self.make_room(Index::drop_oldest)
    }

    /// Makes room by dropping the oldest file that was set aside. Returns false if there was none.
    pub fn drop_damaged(&self) -> bool {
        self.make_room(Index::drop_damaged)
    }

    fn make_room(&self, drop: impl FnOnce(&mut Index, &mut Change) -> bool) -> bool {
        let _turn = self.changes.lock();
        if self.unblock().is_err() {
            return false;
        }
        let mut change = Change::default();
        let dropped = drop(&mut self.index.lock(), &mut change);
        // A failed save was logged, and the next change repeats it.
        let _ = self.apply(&change);
        dropped
    }

    /// Lists the retained windows after `after`.
    pub fn list(&self, after: u64) -> Listing {
        self.index.lock().list(after)
    }

    /// Returns a retained window, or the reason why it is not available. A file that could not be read is examined
    /// again.
    pub fn get(&self, seq: u64) -> Result<Arc<StoredWindow>, Missing> {
        self.look_again(seq);
        self.index.lock().get(seq)
    }

    /// The newest window that can be read, acknowledged or not.
    pub fn newest(&self) -> Option<Arc<StoredWindow>> {
        self.index.lock().newest().cloned()
    }

    /// Lets window `seq` be written again if it is the last one and its file was damaged: the maps still hold it.
    pub fn reclaim(&self, seq: u64) {
        self.index.lock().reclaim(seq);
    }

    /// Tells whether the window was ever committed, whatever has become of it.
    #[cfg(test)]
    pub fn contains(&self, seq: u64) -> bool {
        !matches!(self.index.lock().get(seq), Err(Missing::Never))
    }

    /// The number of the newest window that was ever committed, whatever has become of it; 0 if there was none. The
    /// next window has to be beyond it, after a reboot, too.
    pub fn last_seq(&self) -> u64 {
        self.index.lock().state.last
    }

    /// The number of lost windows that the next window has to report. Its commit counts as reported what its head says.
    pub fn unreported_lost(&self) -> u64 {
        self.index.lock().unreported()
    }

    /// Returns a receiver of the newest window's number, which also notifies of each new window.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub fn statistics(&self) -> Statistics {
        self.index.lock().statistics()
    }

    /// The number of windows that were lost to the collectors that the configuration names; 0 if it names none.
    pub fn lost_to_collectors(&self) -> u64 {
        self.index.lock().lost_to_collectors()
    }

    /// Fails unless the file system has room for a window as large as the newest one, beside what windows leave free.
    /// A window that was not begun is whole in the maps, unlike one whose file could not be written to its end.
    /// Where there was far more room a moment ago, windows of the clock are not looked at: each look takes a part of what
    /// such a window needs.
    pub fn expect_room(&self, by: ClosedBy) -> io::Result<()> {
        let is_often = by == ClosedBy::Schedule;
        if is_often && self.roomy_until.lock().is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        let newest = self.newest().map_or(0, |newest| newest.entry.bytes);
        let (free, needed) = loop {
            // The directory is made together with the first window.
            let statistics =
                self.directory.path().ancestors().find_map(|path| rustix::fs::statvfs(path).ok());
            let Some(system) = statistics.filter(|system| system.f_blocks > 0) else { return Ok(()) };
            let total = system.f_blocks.saturating_mul(system.f_frsize);
            let needed = self.keep_free.min(total / KEEP_FREE_PART).saturating_add(newest);
            let free = system.f_bavail.saturating_mul(system.f_frsize);
            if free > needed {
                let roomy = free - needed > ROOMY;
                *self.roomy_until.lock() = roomy.then(|| Instant::now() + ROOMY_FOR);
                return Ok(());
            }
            if !self.directory.give_up_spares() {
                break (free, needed);
            }
        };
        let reason = format!("No space left on device: {free} bytes are free, a window needs {needed}");
        Err(io::Error::new(io::ErrorKind::StorageFull, reason))
    }

    /// Fails unless `seq` can be the next window.
    pub fn expect_new(&self, seq: u64) -> io::Result<()> {
        let index = self.index.lock();
        if index.removed {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the probe was removed"));
        }
        if let Some(file) = index.unreadable.get(&seq) {
            let reason = format!("there is a file of window {seq} that can't be read: {}", file.reason);
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
