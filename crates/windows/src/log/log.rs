//! The log itself. The files of small windows and `state.json` are written as ever, but not synced: the same content is
//! appended to the log, and one write and one sync of the log make all of it durable that waits at the moment. So many
//! windows share one sync, and none needs more than one. Files get their names and removals their records in such an
//! order that a name never leads to a content that the log does not know ([`Ahead`]).
//!
//! A segment is used again only once its changes are made and the file system has synced everything before its
//! successor. The log is
//! read only after a loss of power ([`replay`](super::replay)): a daemon that is killed leaves all files as they are.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::log::record::{BLOCK, Change, Record};
use crate::log::replay;
use crate::log::segment::{self, FULL, SEGMENTS, SegmentHead};

/// The log takes at most one part of this many of the free room on its file system; without that there is no log.
const PART_OF_FREE: u64 = 16;

/// The time for which a log that could not be written is left alone.
const LEFT_ALONE: Duration = Duration::from_secs(60);

/// The log of all probes' windows below one directory.
#[derive(Debug)]
pub struct Log {
    root: PathBuf,
    boot: String,
    state: Mutex<State>,
    /// The condition that a write is over.
    changed: Condvar,
    /// The condition that the files of a segment are as its records say.
    applied: Condvar,
}

/// The number of a record: its write includes all records with smaller numbers.
pub type Ticket = u64;

/// Records of changes that are made once these are on disk. Until it is dropped the segment with the records is not used
/// again.
#[derive(Debug)]
pub struct Ahead {
    log: Arc<Log>,
    ticket: Ticket,
    place: usize,
}

impl Ahead {
    /// Waits until the records are on disk to stay.
    pub fn wait(&self) -> io::Result<()> {
        self.log.wait(self.ticket)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let mut state = self.log.state.lock();
        state.ahead[self.place] -= 1;
        if state.ahead[self.place] == 0 {
            self.log.applied.notify_all();
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// The records that no write includes yet.
    waiting: Vec<u8>,
    /// The number of records that were appended, and of those that are on disk.
    appended: Ticket,
    durable: Ticket,
    /// True while a thread writes.
    writing: bool,
    /// The records of the last write that failed, and the error.
    failed: Option<(Ticket, io::ErrorKind, String)>,
    /// The time until which each file is synced by itself, because the log could not be written.
    off_until: Option<Instant>,
    /// True if there are segments that must not be replayed any more.
    is_stale: bool,
    /// The place and the generation of the segment that the waiting records are for, and the end of what was written to
    /// it: 0 if the next write begins it.
    place: usize,
    generation: u64,
    end: u64,
    /// For each segment, true while files of its windows may not be durable by themselves.
    needed: [bool; SEGMENTS],
    /// For each segment, the number of [`Ahead`] with records in it.
    ahead: [usize; SEGMENTS],
    /// A full segment that no thread could be had for to make its files durable.
    unreleased: Option<usize>,
}

impl Log {
    /// Opens the log below `root`, and makes the files there as the log says if this is another boot than the one at
    /// which it was written. `None` if the file system has too little room for a log, or the log can't be read.
    pub fn open(root: &Path, boot: &str) -> Option<Arc<Self>> {
        let opened = replay::replay(root, boot).map(|generation| {
            let free = root.ancestors().find_map(|path| rustix::fs::statvfs(path).ok());
            let free = free.map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize));
            let has_room = free / PART_OF_FREE >= SEGMENTS as u64 * FULL;
            // Old records may lie behind new ones: no generation comes twice.
            let now = u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default();
            has_room.then_some(now.max(generation + 1))
        });
        let generation = opened.unwrap_or_else(|error| {
            let root = root.display();
            tracing::error!(%root, %error, "the log of windows can't be used; each window is synced by itself");
            None
        })?;
        let state = State { generation, ..State::default() };
        let (root, boot) = (root.to_owned(), boot.to_owned());
        let (changed, applied) = (Condvar::new(), Condvar::new());
        Some(Arc::new(Self { root, boot, state: Mutex::new(state), changed, applied }))
    }

    /// Appends the record of a change that was made, which the next write includes. `None` if the log can't be written.
    pub fn append(&self, probe: &str, change: Change<'_>) -> Option<Ticket> {
        self.append_all(&mut self.state.lock(), probe, &[change])
    }

    /// Appends records of changes that the caller makes once they are on disk. `None` if the log can't be written: the
    /// caller syncs the files instead.
    pub fn append_ahead(self: &Arc<Self>, probe: &str, changes: &[Change<'_>]) -> Option<Ahead> {
        let mut state = self.state.lock();
        let ticket = self.append_all(&mut state, probe, changes)?;
        let place = state.place;
        state.ahead[place] += 1;
        Some(Ahead { log: Arc::clone(self), ticket, place })
    }

    fn append_all(&self, state: &mut State, probe: &str, changes: &[Change<'_>]) -> Option<Ticket> {
        if state.off_until.is_some() && !self.begin_again(state) {
            return None;
        }
        let generation = state.generation;
        for &change in changes {
            Record { probe, change }.encode(generation, &mut state.waiting);
        }
        state.appended += 1;
        Some(state.appended)
    }

    /// Tells whether a record is on disk to stay.
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.state.lock().durable >= ticket
    }

    /// Begins the log anew after a failure. Returns false if that can't be done yet.
    fn begin_again(&self, state: &mut State) -> bool {
        if state.ahead != [0; SEGMENTS] {
            // Records on disk must not be forgotten before the files are as they say.
            return false;
        }
        if state.is_stale {
            // The records that were written are needed until the files are synced, and must not be replayed once files
            // have changed without a record.
            let forget = |place| segment::forget(&self.root, place);
            let other = (state.place + 1) % SEGMENTS;
            let forgotten =
                sync_all(&self.root).and_then(|()| forget(other)).and_then(|()| forget(state.place));
            if forgotten.is_err() {
                return false;
            }
            state.is_stale = false;
        }
        if state.writing || state.off_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        state.off_until = None;
        state.waiting.clear();
        (state.place, state.end, state.needed) = (0, 0, [false; SEGMENTS]);
        state.generation += 1;
        true
    }

    /// Waits until the record is on disk to stay. Whoever comes first writes all records that wait.
    fn wait(self: &Arc<Self>, ticket: Ticket) -> io::Result<()> {
        let mut state = self.state.lock();
        loop {
            if state.durable >= ticket {
                return Ok(());
            }
            if let Some((_, kind, reason)) = state.failed.as_ref().filter(|failed| ticket <= failed.0) {
                return Err(io::Error::new(*kind, reason.clone()));
            }
            if state.writing {
                self.changed.wait(&mut state);
                continue;
            }
            state = self.write(state);
        }
    }

    /// Writes all records that wait. The caller goes on with the lock that is returned.
    fn write<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.writing = true;
        let mut blocks = std::mem::take(&mut state.waiting);
        blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
        let target = state.appended;
        let place = state.place;
        let head =
            (state.end == 0).then(|| SegmentHead { generation: state.generation, boot: self.boot.clone() });
        let at = state.end.max(BLOCK as u64);
        state.end = at + blocks.len() as u64;
        state.needed[place] = true;
        let other = (place + 1) % SEGMENTS;
        // The records that come from now on are of the next segment, if its windows are durable by themselves. Until
        // then this segment grows.
        let turns = state.end >= FULL && !state.needed[other];
        if turns {
            (state.place, state.end) = (other, 0);
            state.generation += 1;
        }
        let full = state.unreleased.take().or(turns.then_some(place));
        drop(state);
        let written = segment::write(&self.root, place, head.as_ref(), at, &blocks);
        let unreleased = full.filter(|full| !self.spawn_release(*full));
        let mut state = self.state.lock();
        state.writing = false;
        // The next write tries again; meanwhile the other segment grows.
        state.unreleased = unreleased;
        match written {
            Ok(()) => state.durable = target,
            Err(error) => state.fail(&error),
        }
        self.changed.notify_all();
        state
    }

    fn spawn_release(self: &Arc<Self>, place: usize) -> bool {
        let log = Arc::clone(self);
        thread::Builder::new().name("window-log".into()).spawn(move || log.release(place)).is_ok()
    }

    /// Syncs all files, so that a segment can be used again.
    fn release(&self, place: usize) {
        let mut state = self.state.lock();
        while state.ahead[place] > 0 {
            self.applied.wait(&mut state);
        }
        drop(state);
        let synced = sync_all(&self.root);
        let mut state = self.state.lock();
        match synced {
            Ok(()) => state.needed[place] = false,
            Err(error) => state.fail(&error),
        }
    }
}

impl State {
    fn fail(&mut self, error: &io::Error) {
        tracing::error!(%error, "the log of windows can't be written; each window is synced by itself");
        self.failed = Some((self.appended, error.kind(), error.to_string()));
        self.off_until = Some(Instant::now() + LEFT_ALONE);
        self.is_stale = true;
    }
}

/// Syncs the file system of a directory. Fails if any file could not be written since the last sync.
pub fn sync_all(root: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(root)?)?)
}
