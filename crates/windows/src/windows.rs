//! The windows of one probe, kept until they are acknowledged. The store has a row for each window
//! and each baseline ([`rows`](crate::rows)), and one with the [`State`] of all. The index plans a
//! change, one transaction commits it to the store, and then the index applies it: after a crash or
//! a full disk, the change is there as a whole or not at all.

pub mod commit;
#[cfg(test)]
pub mod tests;

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use tokio::sync::watch;
pub use twinprobe_ebpf_common::window::{Listing, WindowStatistics};
use twinprobe_store::{self as store, Database, Durable};

use crate::body::described::WholeHeads;
use crate::body::draft::{Bodies, LARGEST};
use crate::body::head::ClosedBy;
use crate::body::stored::{BodySource, StoredWindow};
use crate::index::index::{IndexChange, WindowIndex};
use crate::retention::{AckError, ListBounds, Missing, RetentionLimits};
use crate::rows::{self, Form};
use crate::told::WindowTeller;

/// The windows of one probe. They remain after a replacement of the probe. Methods wait for the
/// disk, except methods that only query.
#[derive(Debug)]
pub struct Windows {
    /// The number of these windows' series in the store. A new probe with the same name has another
    /// series.
    pub series: i64,
    pub name: String,
    pub database: Arc<Database>,
    pub bodies: Arc<Bodies>,
    /// The lock under which one change after another is planned, committed and applied. It is taken
    /// before `index`.
    turn: Arc<Mutex<IsStored>>,
    /// The index. No task waits for the disk while it holds this lock.
    pub index: Mutex<WindowIndex>,
    /// The number of the newest window that was ever committed.
    pub newest: watch::Sender<u64>,
    pub itself: Weak<Self>,
    /// The room on the file system that windows leave free, in bytes.
    keep_free: u64,
    /// True if the next window must have whole sums.
    pub begins_anew: AtomicBool,
    pub whole_heads: WholeHeads,
    /// The instant until which the daemon need not check the room again.
    roomy_until: Mutex<Option<Instant>>,
    /// The sender of messages; `None` if no client needs them.
    pub told: Option<WindowTeller>,
    /// True while the disk counts as full.
    #[cfg(test)]
    pub is_full: AtomicBool,
}

/// True if the store has a row of the series.
pub type IsStored = bool;
/// The right to make one change.
pub type ChangeTurn = ArcMutexGuard<RawMutex, IsStored>;

/// The part of a file system that windows leave free if this is less than `keep_free`.
const KEEP_FREE_PART: u64 = 20;
/// If this many bytes are free beyond the needed room, the daemon skips the check for scheduled
/// windows during this time.
const ROOMY: u64 = 1 << 30;
const ROOMY_FOR: Duration = Duration::from_millis(100);

/// The facts that the windows of all probes of a daemon share.
#[derive(Clone, Debug)]
pub struct Shared {
    pub database: Arc<Database>,
    pub bodies: Arc<Bodies>,
    pub keep_free: u64,
}

impl Windows {
    /// Makes the windows of a probe. `index` makes the index from the store.
    pub fn new(
        Shared {
            database,
            bodies,
            keep_free,
        }: Shared,
        (series, name): (i64, &str),
        is_stored: bool,
        told: Option<WindowTeller>,
        index: impl FnOnce(Weak<dyn BodySource>) -> WindowIndex,
    ) -> Arc<Self> {
        Arc::new_cyclic(|itself| {
            let source: Weak<dyn BodySource> = Weak::<Self>::clone(itself);
            let index = index(source);
            let newest = watch::Sender::new(index.state.last);
            Self {
                series,
                name: name.to_owned(),
                database,
                bodies,
                turn: Arc::new(Mutex::new(is_stored)),
                index: Mutex::new(index),
                newest,
                itself: Weak::clone(itself),
                keep_free,
                begins_anew: false.into(),
                whole_heads: WholeHeads::default(),
                roomy_until: Mutex::default(),
                told,
                #[cfg(test)]
                is_full: false.into(),
            }
        })
    }

    /// Waits until no other change is being made.
    pub fn turn(&self) -> ChangeTurn {
        self.turn.lock_arc()
    }

    /// Sets the limits and drops the windows that exceed them. The next window drops the rows that
    /// can't be dropped now.
    pub fn set_limits(&self, limits: RetentionLimits) {
        let turn = self.turn();
        self.index.lock().limits = limits;
        let change = self.index.lock().keep_limits();
        let _ = self.change(turn, change, Durable::Now);
    }

    /// Acknowledges all windows up to `seq`, for one collector or for all.
    pub fn acknowledge(&self, seq: u64, collector: Option<&str>) -> Result<(), AckError> {
        let turn = self.turn();
        let change = self.index.lock().acknowledge(seq, collector)?;
        self.change(turn, change, Durable::Now)
            .map_err(|error| AckError::NotWritten(error.kind()))
    }

    /// Writes the state, if the store has anything of the probe.
    pub fn save(&self) {
        let turn = self.turn();
        if *turn {
            let change = self.index.lock().save();
            let _ = self.change(turn, change, Durable::Soon);
        }
    }

    /// The last window that a collector has acknowledged.
    pub fn acknowledged(&self, collector: &str) -> Result<u64, AckError> {
        self.index.lock().acknowledged(collector)
    }

    /// Records that the client that closed the window has received all of it. A power failure may
    /// undo the record: then another client gets the window again.
    pub fn set_taken(&self, seq: u64) {
        // Most windows are stored with this mark from the beginning, and wait for no other change
        // here.
        if self.index.lock().take(seq).is_none() {
            return;
        }
        let turn = self.turn();
        let change = self.index.lock().take(seq);
        let _ = change.map(|change| self.change(turn, change, Durable::Soon));
    }

    /// Returns the windows that clients had closed and did not take to their end, oldest first.
    pub fn untaken(&self) -> Vec<Arc<StoredWindow>> {
        self.index.lock().untaken()
    }

    /// Makes room: drops the oldest window and the windows that depend on it, unless the newest
    /// window is among them. Returns false if no window was dropped.
    pub fn drop_oldest(&self) -> bool {
        self.make_room(WindowIndex::drop_oldest)
    }

    /// Makes room: drops the oldest window that was set aside. Returns false if there is no such
    /// window.
    pub fn drop_damaged(&self) -> bool {
        self.make_room(WindowIndex::drop_damaged)
    }

    fn make_room(&self, plan: impl FnOnce(&WindowIndex) -> Option<IndexChange>) -> bool {
        let turn = self.turn();
        let change = plan(&self.index.lock());
        change.is_some_and(|change| self.change(turn, change, Durable::Now).is_ok())
    }

    /// Lists the retained windows after `after`, oldest first, within the bounds.
    pub fn list(&self, after: u64, bounds: ListBounds) -> Listing {
        self.index.lock().list(after, bounds)
    }

    /// Returns a retained window, or the reason why it is not available.
    pub fn get(&self, seq: u64) -> Result<Arc<StoredWindow>, Missing> {
        self.index.lock().get(seq)
    }

    /// Returns all stored windows, oldest first, each with its fate; damaged and acknowledged
    /// windows, too.
    pub fn stored(&self) -> Vec<(Arc<StoredWindow>, Form)> {
        self.index.lock().stored()
    }

    /// Returns the body of a window unchanged, damaged or not.
    pub fn body(&self, window: &StoredWindow) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.content(window)?.copy_to(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the newest window, acknowledged or not.
    pub fn newest(&self) -> Option<Arc<StoredWindow>> {
        self.index.lock().newest().cloned()
    }

    /// Tells whether the window was ever committed, even if it is no longer there.
    #[cfg(test)]
    pub fn contains(&self, seq: u64) -> bool {
        !matches!(self.index.lock().get(seq), Err(Missing::Never))
    }

    /// Returns the number of the newest window that was ever committed, even if it was removed
    /// later; 0 if there was none. The next window must have a higher number, also after a reboot.
    pub fn last_seq(&self) -> u64 {
        self.index.lock().state.last
    }

    /// Returns the number of lost windows that window `seq` must report. The commit of the window
    /// marks the number in its head as reported.
    pub fn unreported_lost(&self, seq: u64) -> u64 {
        self.index.lock().unreported(seq)
    }

    /// Returns a receiver of the newest window's number. The receiver is notified of each new
    /// window.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub fn statistics(&self) -> WindowStatistics {
        self.index.lock().statistics()
    }

    /// Returns the number of retained windows that each named collector has not acknowledged.
    pub fn lags(&self) -> Vec<(String, u64)> {
        self.index.lock().lags()
    }

    /// Fails unless the file system has room for a window as large as the newest one, in addition
    /// to the room that windows must leave free. The check comes before a body is begun: until
    /// then, the maps contain the whole window. Scheduled windows skip the check for some time
    /// after a check that has found far more room, because a check takes a noticeable part of a
    /// window's time.
    pub fn expect_room(&self, by: ClosedBy) -> io::Result<()> {
        let is_often = by == ClosedBy::Schedule;
        if is_often
            && self
                .roomy_until
                .lock()
                .is_some_and(|until| Instant::now() < until)
        {
            return Ok(());
        }
        let (.., newest) = self.index.lock().together();
        let statistics = self
            .database
            .path()
            .parent()
            .and_then(|path| rustix::fs::statvfs(path).ok());
        let Some(system) = statistics.filter(|system| system.f_blocks > 0) else {
            return Ok(());
        };
        let total = system.f_blocks.saturating_mul(system.f_frsize);
        let needed = self
            .keep_free
            .min(total / KEEP_FREE_PART)
            .saturating_add(newest);
        let mut free = system.f_bavail.saturating_mul(system.f_frsize);
        // Removed windows leave room in the store for other small ones.
        if free <= needed && newest <= LARGEST as u64 {
            free = free.saturating_add(self.database.unused());
        }
        if free > needed {
            let roomy = free - needed > ROOMY;
            *self.roomy_until.lock() = roomy.then(|| Instant::now() + ROOMY_FOR);
            return Ok(());
        }
        let reason =
            format!("No space left on device: {free} bytes are free, a window needs {needed}");
        Err(io::Error::new(io::ErrorKind::StorageFull, reason))
    }

    /// Fails unless `seq` can be the next window.
    pub fn expect_new(&self, seq: u64) -> io::Result<()> {
        let index = self.index.lock();
        if index.removed {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the probe was removed",
            ));
        }
        if seq <= index.state.last && !index.is_reclaimed(seq) {
            let newest = index.state.last;
            let reason = format!("window {seq} would come after window {newest}");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        }
        Ok(())
    }

    /// True once the windows were removed together with their probe.
    pub fn is_removed(&self) -> bool {
        self.index.lock().removed
    }

    /// Removes all windows together with their probe, in one change, which `commit` makes. After
    /// that, other holders of these windows can't write any more.
    pub fn remove<E>(&self, commit: impl FnOnce(store::Change) -> Result<(), E>) -> Result<(), E> {
        let _turn = self.turn();
        let (windows, baselines) = self.index.lock().all();
        let files = windows
            .iter()
            .chain(&baselines)
            .filter(|(_, is_file)| *is_file)
            .map(|(id, _)| *id);
        let files: Vec<i64> = files.collect();
        let series = self.series;
        commit(Box::new(move |connection| {
            windows
                .iter()
                .try_for_each(|(id, _)| rows::delete_window(connection, *id))?;
            baselines
                .iter()
                .try_for_each(|(id, _)| rows::delete_baseline(connection, *id))?;
            rows::delete_series(connection, series)
        }))?;
        self.index.lock().removed = true;
        files.into_iter().for_each(|id| self.bodies.remove(id));
        Ok(())
    }
}
