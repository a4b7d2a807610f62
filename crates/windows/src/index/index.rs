//! The index of a probe's windows, in memory. It plans the changes of a request. The windows commit the plan, and then apply
//! it here. So clients see only what is on disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use twinprobe_ebpf_common::window::{Listing, Statistics};

use crate::body::head::ClosedBy;
use crate::body::stored::StoredWindow;
use crate::index::state::State;
use crate::retention::{AckError, Limits, Missing};
use crate::rows::{Baseline, Form};

/// The windows of one probe, as they are in the store.
#[derive(Debug, Default)]
pub struct Index {
    pub state: State,
    pub limits: Limits,
    /// The windows that could not be read when they were read last.
    pub unreadable: BTreeSet<u64>,
    /// The baselines, each by the number of the open window and the serial of the deployment.
    pub baselines: BTreeMap<(u64, u64), Baseline>,
    pub retained: BTreeMap<u64, Retained>,
    /// The size of the retained windows in bytes.
    pub bytes: u64,
    /// The windows that were set aside, oldest first.
    pub damaged: VecDeque<Arc<StoredWindow>>,
    /// The newest window, once it is acknowledged.
    pub acknowledged: Option<Arc<StoredWindow>>,
    /// True once the windows were removed together with their probe.
    pub removed: bool,
}

#[derive(Debug)]
pub struct Retained {
    pub window: Arc<StoredWindow>,
    pub taken: bool,
}

impl Retained {
    pub fn is_page(&self) -> bool {
        self.window.closed_by == ClosedBy::Page
    }
}

/// Ids of rows, each with whether the body is a file.
pub type Ids = Vec<(i64, bool)>;

/// A change of the store.
#[derive(Debug, Default)]
#[must_use]
pub struct Change {
    /// The state after the change.
    pub state: State,
    /// True if the state has to be written: the windows do not say the same.
    pub saves: bool,
    pub new: Option<Arc<StoredWindow>>,
    /// The windows that go.
    pub gone: Vec<Arc<StoredWindow>>,
    pub forms: Vec<(Arc<StoredWindow>, Form)>,
    pub baseline: Option<((u64, u64), Baseline)>,
    pub baselines_gone: Vec<(u64, u64)>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        let Self { state: _, saves, new, gone, forms, baseline, baselines_gone } = self;
        !saves
            && new.is_none()
            && gone.is_empty()
            && forms.is_empty()
            && baseline.is_none()
            && baselines_gone.is_empty()
    }
}

impl Index {
    /// Adds a window that a start has found.
    pub fn keep(&mut self, window: Arc<StoredWindow>, form: Form) {
        match form {
            Form::Acknowledged => self.acknowledged = Some(window),
            Form::Damaged => self.damaged.push_back(window),
            Form::Closed | Form::Taken => {
                self.bytes += window.entry.bytes;
                self.retained.insert(window.seq(), Retained { window, taken: form == Form::Taken });
            }
        }
    }

    /// Counts the windows as damaged that the state knows and the store does not have. The store has the last window of all,
    /// or the state says what became of it.
    pub fn lose_vanished(&mut self, probe: &str) {
        let State { first, last, acknowledged, lost, outlived, damaged, .. } = &mut self.state;
        let stored = self.retained.keys().next_back().copied().unwrap_or_default();
        let known = [stored, first.saturating_sub(1), *acknowledged, lost.newest(), outlived.newest()];
        for seq in known.into_iter().max().unwrap_or_default() + 1..=*last {
            tracing::error!(probe, seq, "a window is damaged: its row is not there");
            lost.add(seq, u64::MAX);
            *damaged += 1;
        }
    }

    /// Makes a change that is on disk.
    pub fn apply(&mut self, change: Change) {
        let Change { state, saves: _, new, gone, forms, baseline, baselines_gone } = change;
        self.state = state;
        for window in gone {
            self.take_out(&window);
        }
        for (window, form) in forms {
            self.take_out(&window);
            self.keep(window, form);
        }
        for key in baselines_gone {
            self.baselines.remove(&key);
        }
        self.baselines.extend(baseline);
        if let Some(window) = new {
            self.keep(window, Form::Closed);
        }
    }

    fn take_out(&mut self, window: &StoredWindow) {
        let is_it = |other: &Arc<StoredWindow>| other.id == window.id;
        let seq = window.seq();
        if self.retained.get(&seq).is_some_and(|kept| is_it(&kept.window)) {
            self.retained.remove(&seq);
            self.bytes -= window.entry.bytes;
        }
        self.acknowledged.take_if(|window| is_it(window));
        self.damaged.retain(|window| !is_it(window));
        self.unreadable.remove(&seq);
    }

    /// The baseline of the open window of a deployment, or of the newest deployment if no serial is given; `None` if the
    /// newest window has made the baseline needless.
    pub fn baseline_of(&self, serial: Option<u64>) -> Option<((u64, u64), Baseline)> {
        let newest = self.newest().map_or(0, |newest| newest.seq());
        let fits =
            |((seq, of), _): &(&(u64, u64), &Baseline)| *seq > newest && serial.is_none_or(|s| s == *of);
        self.baselines.iter().rev().find(fits).map(|(key, baseline)| (*key, baseline.clone()))
    }

    /// The last window that a collector has acknowledged.
    pub fn acknowledged(&self, collector: &str) -> Result<u64, AckError> {
        let known = self.limits.collectors.iter().any(|known| known == collector);
        let cursor = || self.state.cursor(collector);
        known.then(cursor).ok_or_else(|| AckError::UnknownCollector(collector.to_owned()))
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
        } else if seq < self.state.first.max(1) || seq > self.state.last {
            Err(Missing::Never)
        } else if self.state.lost.contains(seq) {
            Err(Missing::Lost)
        } else if self.state.outlived.contains(seq) {
            Err(Missing::Outlived)
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

    pub fn stored(&self) -> Vec<(Arc<StoredWindow>, Form)> {
        let form = |kept: &Retained| if kept.taken { Form::Taken } else { Form::Closed };
        let retained = self.retained.values().map(|kept| (Arc::clone(&kept.window), form(kept)));
        let acknowledged = self.acknowledged.iter().map(|window| (Arc::clone(window), Form::Acknowledged));
        let damaged = self.damaged.iter().map(|window| (Arc::clone(window), Form::Damaged));
        let mut all: Vec<_> = retained.chain(acknowledged).chain(damaged).collect();
        all.sort_by_key(|(window, _)| window.id);
        all
    }

    /// The windows that are taken and kept.
    #[cfg(test)]
    pub fn taken(&self) -> Vec<u64> {
        self.retained.iter().filter(|(_, kept)| kept.taken).map(|(seq, _)| *seq).collect()
    }

    /// The size of everything that is kept, in bytes.
    pub fn bytes(&self) -> u64 {
        let others = self.acknowledged.iter().chain(&self.damaged).map(|window| window.entry.bytes);
        let baselines = self.baselines.values().map(|baseline| baseline.bytes);
        self.bytes + others.chain(baselines).sum::<u64>()
    }

    /// Everything that the store has of the probe: the ids of windows and of baselines.
    pub fn all(&self) -> (Ids, Ids) {
        let retained = self.retained.values().map(|kept| &kept.window);
        let windows = retained.chain(&self.acknowledged).chain(&self.damaged);
        let baselines = self.baselines.values().map(|baseline| (baseline.id, baseline.is_file));
        (windows.map(|window| (window.id, window.is_file)).collect(), baselines.collect())
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

    /// The number of lost windows that window `seq` has to report.
    pub fn unreported(&self, seq: u64) -> u64 {
        let lost = self.state.lost.total() - u64::from(self.is_reclaimed(seq));
        lost.saturating_sub(self.state.reported)
    }

    /// True if `seq` is the last window, and was lost with its damaged body: it can be stored again, because the maps still
    /// hold it.
    pub fn is_reclaimed(&self, seq: u64) -> bool {
        seq == self.state.last && self.state.lost.contains(seq)
    }
}
