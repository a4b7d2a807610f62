//! The index of a probe's windows. It decides which windows go; [`follow`](super::follow) then changes the files.

mod foresee;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use twinprobe_ebpf_common::window::{Listing, Statistics};

use crate::file::directory::{self, Form};
use crate::file::head::ClosedBy;
use crate::file::stored::StoredWindow;
use crate::retention::{AckError, Limits, Missing};
use crate::state::State;

/// The windows of one probe, in memory.
#[derive(Debug, Default)]
pub struct Index {
    pub state: State,
    /// True if the state differs from the one on disk.
    pub unsaved: bool,
    /// The number of states that were to be written, and the number of the last of them that is on disk.
    pub saves: u64,
    pub saved: u64,
    /// Lost windows that have a `SEQ.lost` file, because the state on disk does not say that they are lost.
    pub marked: Vec<u64>,
    pub limits: Limits,
    /// The files that can't be read, or that a later version has written: nobody changes them.
    pub unreadable: BTreeMap<u64, Unreadable>,
    /// The baselines, each as the number of the open window and the serial of the deployment.
    pub baselines: BTreeSet<(u64, u64)>,
    /// The reason why the directory can't be read, and nothing in it may be changed.
    pub blocked: Option<String>,
    retained: BTreeMap<u64, Retained>,
    /// The size of the retained windows in bytes.
    bytes: u64,
    /// The size in bytes of sums that are in no window, and of files that are damaged or can't be read.
    beside: u64,
    /// The files that were set aside, oldest first, with their sizes.
    damaged: VecDeque<(String, u64)>,
    /// The newest window, once it is acknowledged.
    acknowledged: Option<Arc<StoredWindow>>,
    /// True once the windows were removed together with their probe.
    pub removed: bool,
}

#[derive(Debug)]
struct Retained {
    window: Arc<StoredWindow>,
    taken: bool,
    /// The form of the file's name.
    form: Form,
}

impl Retained {
    fn is_page(&self) -> bool {
        self.window.closed_by == ClosedBy::Page
    }
}

/// A file that can't be read.
#[derive(Debug)]
pub struct Unreadable {
    pub form: Form,
    pub reason: String,
}

/// The changes of files that a decision needs. Each list is in the order of the windows.
#[derive(Debug, Default)]
#[must_use]
pub struct Change {
    pub acknowledged: Vec<(u64, Form)>,
    /// True if the last of `acknowledged` is the newest window, and so is kept.
    pub newest_acknowledged: bool,
    pub lost: Vec<(u64, Form)>,
    /// Windows that go and that their clients have taken.
    pub served: Vec<(u64, Form)>,
    /// An acknowledged window that is no longer the newest.
    pub superseded: Option<u64>,
    /// The names of files that were set aside, and go.
    pub damaged: Vec<String>,
}

impl Index {
    /// Makes an index without any retained window.
    pub fn new(state: State, unsaved: bool, marked: Vec<u64>) -> Self {
        Self { state, unsaved, marked, ..Self::default() }
    }

    /// Takes back that the last window was lost with its damaged file, so that it can be stored again.
    pub fn reclaim(&mut self, seq: u64) {
        let state = &mut self.state;
        if seq == state.last && state.lost.contains(seq) {
            state.lost.take_back(seq);
            state.unclaimed -= u64::from(self.limits.collectors.is_empty()).min(state.unclaimed);
            state.last = seq - 1;
            self.unsaved = true;
        }
    }

    /// Adds a window that was committed and reports this number of lost windows.
    pub fn insert(&mut self, window: Arc<StoredWindow>, reports: u64) -> Change {
        let seq = window.seq();
        let state = &mut self.state;
        self.unsaved |= state.first == 0 || reports > 0;
        if state.first == 0 {
            state.first = seq;
        }
        state.last = seq;
        state.reported += reports;
        state.reported_through = seq;
        let superseded = self.acknowledged.take().map(|window| window.seq());
        let mut change = Change { superseded, ..Change::default() };
        if let Some(last) = self.retained.last_entry().filter(|last| last.get().is_page()) {
            let (seq, page) = last.remove_entry();
            self.bytes -= page.window.entry.bytes;
            change.served.push((seq, page.form));
        }
        self.keep(window, Form::Window);
        self.retire(&mut change);
        change
    }

    /// Adds a window whose file exists.
    pub fn keep(&mut self, window: Arc<StoredWindow>, form: Form) {
        if form == Form::Acked {
            self.acknowledged = Some(window);
            return;
        }
        self.bytes += window.entry.bytes;
        self.retained.insert(window.seq(), Retained { window, taken: form == Form::Taken, form });
    }

    /// The newest of all files and the reason why it can't be read; `None` if it can be read.
    pub fn newest_unreadable(&self) -> Option<(u64, &str)> {
        let (&seq, file) = self.unreadable.last_key_value()?;
        self.newest().is_none_or(|newest| newest.seq() < seq).then_some((seq, &*file.reason))
    }

    /// The number of the newest file, whether it can be read or not.
    pub fn newest_file(&self) -> u64 {
        let newest = self.newest().map(|window| window.seq());
        newest.max(self.unreadable.keys().next_back().copied()).unwrap_or_default()
    }

    /// The baseline of the open window of a deployment, or of the newest deployment if no serial is given; `None` if
    /// the file of a window has made the baseline needless.
    pub fn baseline_of(&self, serial: Option<u64>) -> Option<(u64, u64)> {
        let newest = self.newest_file();
        let fits = |&&(seq, of): &&(u64, u64)| seq > newest && serial.is_none_or(|serial| serial == of);
        self.baselines.iter().rev().find(fits).copied()
    }

    /// Sets the limits. Collectors that are no longer named lose their cursors.
    pub fn set_limits(&mut self, limits: Limits) -> Change {
        self.limits = limits;
        let known = self.state.collectors.len();
        self.state.collectors.retain(|name, _| self.limits.collectors.contains(name));
        self.unsaved |= self.state.collectors.len() != known;
        let mut change = Change::default();
        self.release(&mut change);
        self.retire(&mut change);
        change
    }

    /// Acknowledges all windows up to `seq`, for one collector or for all.
    pub fn acknowledge(&mut self, seq: u64, collector: Option<&str>) -> Result<Change, AckError> {
        let mut change = Change::default();
        let cursor = collector.map(|name| self.acknowledged(name)).transpose()?;
        if seq > self.state.last {
            return Err(AckError::Beyond { newest: self.state.last });
        }
        match collector {
            Some(name) if Some(seq) > cursor => {
                self.state.collectors.insert(name.to_owned(), seq);
                self.unsaved = true;
            }
            Some(_) => {}
            None => self.acknowledge_for_all(seq, &mut change),
        }
        self.release(&mut change);
        Ok(change)
    }

    /// The last window that a collector has acknowledged.
    pub fn acknowledged(&self, collector: &str) -> Result<u64, AckError> {
        let known = self.limits.collectors.iter().any(|known| known == collector);
        known.then(|| self.cursor(collector)).ok_or_else(|| AckError::UnknownCollector(collector.to_owned()))
    }

    /// Drops the oldest window, unless it is the only one. Returns false if none was dropped.
    pub fn drop_oldest(&mut self, change: &mut Change) -> bool {
        if self.retained.len() < 2 {
            return false;
        }
        let Some((seq, kept)) = self.retained.pop_first() else { return false };
        self.bytes -= kept.window.entry.bytes;
        if kept.taken && self.limits.taken_counts {
            change.served.push((seq, kept.form));
        } else {
            self.lose(seq);
            change.lost.push((seq, kept.form));
        }
        true
    }

    /// Counts a window as damaged. Returns the form of its file; `None` if the window is not in the index any more.
    pub fn damage(&mut self, seq: u64) -> Option<Form> {
        if let Some(kept) = self.retained.remove(&seq) {
            self.bytes -= kept.window.entry.bytes;
            self.lose(seq);
            self.state.damaged += 1;
            return Some(kept.form);
        }
        self.acknowledged.take_if(|window| window.seq() == seq).map(|_| Form::Acked)
    }

    /// Counts a window as lost that could not be read before and turned out to be damaged.
    pub fn lose_damaged(&mut self, seq: u64) {
        if seq > self.state.acknowledged && !self.state.lost.contains(seq) {
            self.lose(seq);
            self.state.damaged += 1;
        }
    }

    /// Marks a window as taken. Returns the form from which its file has to be renamed; `None` if there is nothing to
    /// rename.
    pub fn take(&mut self, seq: u64) -> Option<Form> {
        let kept = self.retained.get_mut(&seq).filter(|kept| !kept.taken)?;
        kept.taken = true;
        Some(kept.form)
    }

    /// Records the new form of a file.
    pub fn renamed(&mut self, seq: u64, form: Form) {
        if let Some(kept) = self.retained.get_mut(&seq) {
            kept.form = form;
        }
    }

    /// Returns the windows that clients had closed and did not take to their end, oldest first.
    pub fn untaken(&self) -> Vec<Arc<StoredWindow>> {
        let untaken = |kept: &&Retained| !kept.taken && kept.window.closed_by == ClosedBy::Read;
        self.retained.values().filter(untaken).map(|kept| Arc::clone(&kept.window)).collect()
    }

    pub fn list(&self, after: u64) -> Listing {
        let retained = self.listed().skip_while(|(seq, _)| *seq <= after);
        Listing {
            windows: retained.map(|(_, kept)| kept.window.entry.clone()).collect(),
            lost_windows: self.state.lost.after(after),
            ..Listing::default()
        }
    }

    pub fn get(&self, seq: u64) -> Result<Arc<StoredWindow>, Missing> {
        if let Some(kept) = self.retained.get(&seq) {
            Ok(Arc::clone(&kept.window))
        } else if self.unreadable.contains_key(&seq) {
            Err(Missing::Unreadable)
        } else if seq < self.state.first.max(1) || seq > self.state.last {
            Err(Missing::Never)
        } else if self.state.lost.contains(seq) {
            Err(Missing::Lost)
        } else {
            Err(Missing::Acknowledged)
        }
    }

    pub fn newest(&self) -> Option<&Arc<StoredWindow>> {
        self.retained.values().next_back().map(|kept| &kept.window).or(self.acknowledged.as_ref())
    }

    /// The windows that collectors see, oldest first: the window of a page may go at any time.
    fn listed(&self) -> impl DoubleEndedIterator<Item = (u64, &Retained)> {
        self.retained.iter().filter(|(_, kept)| !kept.is_page()).map(|(seq, kept)| (*seq, kept))
    }

    /// The window that would be dropped next.
    pub fn oldest(&self) -> Option<&Arc<StoredWindow>> {
        self.retained.values().next().filter(|_| self.retained.len() > 1).map(|kept| &kept.window)
    }

    /// The size of everything that is kept, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.acknowledged.as_ref().map_or(0, |window| window.entry.bytes) + self.beside
    }

    /// Notes the sizes of the files that are no windows of this index. `files` are all files.
    pub fn weigh(&mut self, mut files: Vec<(String, u64)>) {
        let acknowledged = self.acknowledged.as_ref().map(|window| window.entry.seq);
        let is_window = |seq: u64| self.retained.contains_key(&seq) || acknowledged == Some(seq);
        let is_beside = |name: &str| match directory::parse(name) {
            Some((seq, form)) if Form::READABLE.contains(&form) => !is_window(seq),
            _ => directory::is_baseline(name) || directory::damaged_number(name).is_some(),
        };
        files.retain(|(name, _)| is_beside(name));
        self.beside = files.iter().map(|(_, bytes)| bytes).sum();
        files.retain(|(name, _)| directory::damaged_number(name).is_some());
        files.sort_by_key(|(name, _)| directory::damaged_number(name));
        self.damaged = files.into();
    }

    /// Drops the oldest file that was set aside. Returns false if there is none.
    pub fn drop_damaged(&mut self, change: &mut Change) -> bool {
        let Some((name, bytes)) = self.damaged.pop_front() else { return false };
        self.beside -= bytes;
        change.damaged.push(name);
        true
    }

    pub fn statistics(&self) -> Statistics {
        Statistics {
            retained: self.listed().count(),
            bytes: self.bytes,
            oldest: self.listed().next().map(|(seq, _)| seq),
            newest: self.listed().next_back().map(|(seq, _)| seq),
            lost: self.state.lost.total(),
            damaged: self.state.damaged,
            unreadable: self.unreadable.len(),
        }
    }

    /// The number of lost windows that no window has reported yet.
    pub fn unreported(&self) -> u64 {
        self.state.lost.total().saturating_sub(self.state.reported)
    }

    /// The number of windows that were lost to collectors that are named.
    pub fn lost_to_collectors(&self) -> u64 {
        let State { lost, unclaimed, .. } = &self.state;
        if self.limits.collectors.is_empty() { 0 } else { lost.total().saturating_sub(*unclaimed) }
    }

    fn lose(&mut self, seq: u64) {
        self.state.unclaimed += u64::from(self.limits.collectors.is_empty());
        let oldest = self.retained.keys().next().copied().unwrap_or(u64::MAX);
        self.state.lost.add(seq, oldest);
        self.unsaved = true;
    }

    fn cursor(&self, collector: &str) -> u64 {
        self.state.collectors.get(collector).map_or(0, |&seq| seq).max(self.state.acknowledged)
    }

    /// Acknowledges the windows that all collectors have acknowledged.
    fn release(&mut self, change: &mut Change) {
        let cursors = self.limits.collectors.iter().map(|collector| self.cursor(collector));
        if let Some(seq) = cursors.min() {
            self.acknowledge_for_all(seq, change);
        }
    }

    fn acknowledge_for_all(&mut self, seq: u64, change: &mut Change) {
        if seq <= self.state.acknowledged {
            return;
        }
        self.state.acknowledged = seq;
        self.unsaved = true;
        while let Some(first) = self.retained.first_entry().filter(|first| *first.key() <= seq) {
            let (seq, Retained { window, form, .. }) = first.remove_entry();
            self.bytes -= window.entry.bytes;
            change.acknowledged.push((seq, form));
            if self.retained.is_empty() {
                self.acknowledged = Some(window);
                change.newest_acknowledged = true;
            }
        }
    }

    /// Drops the oldest windows until the limits are met. The window of a page drives out no other.
    fn retire(&mut self, change: &mut Change) {
        let page = self.retained.values().next_back().filter(|kept| kept.is_page());
        let (extra, bytes) = page.map_or((0, 0), |page| (1, page.window.entry.bytes));
        while self.retained.len() - extra > self.limits.retain && self.drop_oldest(change) {}
        // A damaged file is of no use to a collector: it goes before any window.
        while self.bytes() - bytes > self.limits.bytes
            && (self.drop_damaged(change) || self.drop_oldest(change))
        {}
    }
}
