//! The index of a probe's windows, in memory. It plans the changes of a request. The windows commit
//! the plan, and then apply it here. So clients see only data that is on disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use twinprobe_ebpf_common::window::{Listing, WindowEntry, WindowStatistics};

use crate::body::head::ClosedBy;
use crate::body::stored::StoredWindow;
use crate::index::state::SeriesState;
use crate::retention::{AckError, ListBounds, Missing, RetentionLimits};
use crate::rows::{Baseline, Form};

/// The windows of one probe in the store.
#[derive(Debug, Default)]
pub struct WindowIndex {
    pub state: SeriesState,
    pub limits: RetentionLimits,
    /// The windows whose last reading failed.
    pub unreadable: BTreeSet<u64>,
    /// The baselines, each by the number of the open window and the serial of the deployment.
    pub baselines: BTreeMap<(u64, u64), Baseline>,
    pub retained: BTreeMap<u64, RetainedEntry>,
    /// The size of the retained windows in bytes.
    pub bytes: u64,
    /// The windows that were set aside, oldest first.
    pub damaged: VecDeque<Arc<StoredWindow>>,
    /// The newest window, once it is acknowledged.
    pub acknowledged: Option<Arc<StoredWindow>>,
    /// The windows that are in no list, but on which later windows build.
    pub built_on: BTreeMap<u64, Arc<StoredWindow>>,
    /// The last window that each holder has used: see [`Windows::hold`](crate::Windows::hold).
    pub holders: BTreeMap<String, u64>,
    /// True once the probe was removed together with its windows.
    pub removed: bool,
}

#[derive(Debug)]
pub struct RetainedEntry {
    pub window: Arc<StoredWindow>,
    pub taken: bool,
}

impl RetainedEntry {
    pub fn is_page(&self) -> bool {
        self.window.closed_by == ClosedBy::Page
    }
}

/// The ids of rows, each with whether the body of the row is a file.
pub type Ids = Vec<(i64, bool)>;

/// A change of the store.
#[derive(Debug, Default)]
#[must_use]
pub struct IndexChange {
    /// The state after the change.
    pub state: SeriesState,
    /// True if the change must write the state, because the rows of windows do not show it.
    pub saves: bool,
    pub new: Option<Arc<StoredWindow>>,
    /// The windows that are removed.
    pub gone: Vec<Arc<StoredWindow>>,
    pub forms: Vec<(Arc<StoredWindow>, Form)>,
    pub baseline: Option<((u64, u64), Baseline)>,
    pub baselines_gone: Vec<(u64, u64)>,
}

impl IndexChange {
    pub fn is_empty(&self) -> bool {
        let Self {
            state: _,
            saves,
            new,
            gone,
            forms,
            baseline,
            baselines_gone,
        } = self;
        !saves
            && new.is_none()
            && gone.is_empty()
            && forms.is_empty()
            && baseline.is_none()
            && baselines_gone.is_empty()
    }
}

impl WindowIndex {
    /// Adds a window that a start has found.
    pub fn keep(&mut self, window: Arc<StoredWindow>, form: Form) {
        match form {
            Form::Acknowledged => self.acknowledged = Some(window),
            Form::Damaged => self.damaged.push_back(window),
            Form::BuiltOn => drop(self.built_on.insert(window.seq(), window)),
            Form::Closed | Form::Taken => {
                self.bytes += window.entry.bytes;
                self.retained.insert(
                    window.seq(),
                    RetainedEntry {
                        window,
                        taken: form == Form::Taken,
                    },
                );
            }
        }
    }

    /// Counts windows as damaged that the state names and the store lacks. The store has the last
    /// window of all, or the state records the fate of that window.
    pub fn lose_vanished(&mut self, probe: &str) {
        let SeriesState {
            first,
            last,
            acknowledged,
            lost,
            outlived,
            damaged,
            ..
        } = &mut self.state;
        let stored = self
            .retained
            .keys()
            .next_back()
            .copied()
            .unwrap_or_default();
        let known = [
            stored,
            first.saturating_sub(1),
            *acknowledged,
            lost.newest(),
            outlived.newest(),
        ];
        for seq in known.into_iter().max().unwrap_or_default() + 1..=*last {
            tracing::error!(probe, seq, "a window is damaged: its row is not there");
            lost.add(seq, u64::MAX);
            *damaged += 1;
        }
    }

    /// Makes a change that the disk already has.
    pub fn apply(&mut self, change: IndexChange) {
        let IndexChange {
            state,
            saves: _,
            new,
            gone,
            forms,
            baseline,
            baselines_gone,
        } = change;
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
        if self
            .retained
            .get(&seq)
            .is_some_and(|kept| is_it(&kept.window))
        {
            self.retained.remove(&seq);
            self.bytes -= window.entry.bytes;
        }
        if self.built_on.get(&seq).is_some_and(is_it) {
            self.built_on.remove(&seq);
        }
        self.acknowledged.take_if(|window| is_it(window));
        self.damaged.retain(|window| !is_it(window));
        self.unreadable.remove(&seq);
    }

    /// Returns the baseline of the open window of a deployment, or of the newest deployment if
    /// there is no serial; `None` if the newest window has replaced the baseline.
    pub fn baseline_of(&self, serial: Option<u64>) -> Option<((u64, u64), Baseline)> {
        let newest = self.newest().map_or(0, |newest| newest.seq());
        let fits = |((seq, of), _): &(&(u64, u64), &Baseline)| {
            *seq > newest && serial.is_none_or(|s| s == *of)
        };
        self.baselines
            .iter()
            .rev()
            .find(fits)
            .map(|(key, baseline)| (*key, baseline.clone()))
    }

    /// The last window that a collector has acknowledged.
    pub fn acknowledged(&self, collector: &str) -> Result<u64, AckError> {
        let known = self
            .limits
            .collectors
            .iter()
            .any(|known| known == collector);
        let cursor = || self.state.cursor(collector);
        known
            .then(cursor)
            .ok_or_else(|| AckError::UnknownCollector(collector.to_owned()))
    }

    /// Returns the windows that clients had closed and did not take to their end, oldest first.
    pub fn untaken(&self) -> Vec<Arc<StoredWindow>> {
        let untaken =
            |kept: &&RetainedEntry| !kept.taken && kept.window.closed_by == ClosedBy::Read;
        let listed = self.listed().map(|(_, kept)| kept);
        listed
            .filter(untaken)
            .map(|kept| Arc::clone(&kept.window))
            .collect()
    }

    pub fn list(&self, after: u64, bounds: ListBounds) -> Listing {
        let entries = self.after(after.max(self.state.acknowledged));
        let mut bytes = 0_u64;
        let windows = entries.take(bounds.windows).take_while(|entry| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(entry.bytes);
            is_first || bytes <= bounds.bytes
        });
        Listing {
            after,
            lost: self.state.lost.ranges_after(after),
            windows: windows.cloned().collect(),
            lost_windows: self.state.lost.after(after),
            ..Listing::default()
        }
    }

    /// Returns the windows after `seq`, oldest first, including acknowledged windows that a holder
    /// keeps.
    pub fn after(&self, seq: u64) -> impl Iterator<Item = &WindowEntry> {
        let retained = self
            .retained
            .range((Bound::Excluded(seq), Bound::Unbounded));
        retained
            .filter(|(_, kept)| !kept.is_page())
            .map(|(_, kept)| &kept.window.entry)
    }

    /// Returns the number up to which all windows are acknowledged, and used by all holders.
    pub fn released(&self) -> u64 {
        self.holders
            .values()
            .fold(self.state.acknowledged, |released, &used| {
                released.min(used)
            })
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
        self.retained
            .values()
            .next_back()
            .map(|kept| &kept.window)
            .or(self.acknowledged.as_ref())
    }

    /// Returns the windows that collectors see, oldest first. They do not include the window of a
    /// page, which may be removed at any time.
    fn listed(&self) -> impl DoubleEndedIterator<Item = (u64, &RetainedEntry)> {
        let retained = self
            .retained
            .range((Bound::Excluded(self.state.acknowledged), Bound::Unbounded));
        retained
            .filter(|(_, kept)| !kept.is_page())
            .map(|(seq, kept)| (*seq, kept))
    }

    /// The number of windows that each named collector has not acknowledged.
    pub fn lags(&self) -> Vec<(String, u64)> {
        let behind = |name: &String| {
            let cursor = self.state.cursor(name);
            (
                name.clone(),
                self.listed().filter(|(seq, _)| *seq > cursor).count() as u64,
            )
        };
        self.limits.collectors.iter().map(behind).collect()
    }

    pub fn stored(&self) -> Vec<(Arc<StoredWindow>, Form)> {
        let form = |kept: &RetainedEntry| {
            if kept.taken {
                Form::Taken
            } else {
                Form::Closed
            }
        };
        let retained = self
            .retained
            .values()
            .map(|kept| (Arc::clone(&kept.window), form(kept)));
        let acknowledged = self
            .acknowledged
            .iter()
            .map(|window| (Arc::clone(window), Form::Acknowledged));
        let damaged = self
            .damaged
            .iter()
            .map(|window| (Arc::clone(window), Form::Damaged));
        let built_on = self
            .built_on
            .values()
            .map(|window| (Arc::clone(window), Form::BuiltOn));
        let mut all: Vec<_> = retained
            .chain(acknowledged)
            .chain(damaged)
            .chain(built_on)
            .collect();
        all.sort_by_key(|(window, _)| window.id);
        all
    }

    /// Returns the numbers of the windows that a client has taken and that are kept.
    #[cfg(test)]
    pub fn taken(&self) -> Vec<u64> {
        self.retained
            .iter()
            .filter(|(_, kept)| kept.taken)
            .map(|(seq, _)| *seq)
            .collect()
    }

    /// Returns the size of everything that the store keeps for the probe, in bytes.
    pub fn bytes(&self) -> u64 {
        let others = self
            .acknowledged
            .iter()
            .chain(&self.damaged)
            .chain(self.built_on.values());
        let others = others.map(|window| window.entry.bytes);
        let baselines = self.baselines.values().map(|baseline| baseline.bytes);
        self.bytes + others.chain(baselines).sum::<u64>()
    }

    /// Returns all ids of the probe in the store: of windows, and of baselines.
    pub fn all(&self) -> (Ids, Ids) {
        let retained = self.retained.values().map(|kept| &kept.window);
        let windows = retained
            .chain(&self.acknowledged)
            .chain(&self.damaged)
            .chain(self.built_on.values());
        let baselines = self
            .baselines
            .values()
            .map(|baseline| (baseline.id, baseline.is_file));
        (
            windows.map(|window| (window.id, window.is_file)).collect(),
            baselines.collect(),
        )
    }

    pub fn statistics(&self) -> WindowStatistics {
        WindowStatistics {
            retained: self.listed().count(),
            bytes: self.bytes
                + self
                    .built_on
                    .values()
                    .map(|window| window.entry.bytes)
                    .sum::<u64>(),
            oldest: self.listed().next().map(|(seq, _)| seq),
            newest: self.listed().next_back().map(|(seq, _)| seq),
            lost: self.state.lost.total(),
            damaged: self.state.damaged,
            unreadable: self.unreadable.len(),
        }
    }

    /// Returns the number of lost windows that window `seq` must report.
    pub fn unreported(&self, seq: u64) -> u64 {
        let lost = self.state.lost.total() - u64::from(self.is_reclaimed(seq));
        lost.saturating_sub(self.state.reported)
    }

    /// True if `seq` is the last window and its body was lost through damage. The maps still hold
    /// the window, so that it can be stored again.
    pub fn is_reclaimed(&self, seq: u64) -> bool {
        seq == self.state.last && self.state.lost.contains(seq)
    }
}
