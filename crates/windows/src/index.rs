//! The index of a probe's windows, in memory. It plans the changes of a request. The windows commit the plan, and then apply
//! it here. So clients see only what is on disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use twinprobe_ebpf_common::window::{Listing, Statistics};

use crate::body::head::ClosedBy;
use crate::body::stored::StoredWindow;
use crate::retention::{AckError, DAMAGED_WINDOWS, Limits, Missing};
use crate::rows::{Baseline, Form};
use crate::state::State;

/// The windows of one probe, as they are in the store.
#[derive(Debug, Default)]
pub struct Index {
    pub state: State,
    pub limits: Limits,
    /// The windows that could not be read when they were read last.
    pub unreadable: BTreeSet<u64>,
    /// The baselines, each by the number of the open window and the serial of the deployment.
    pub baselines: BTreeMap<(u64, u64), Baseline>,
    retained: BTreeMap<u64, Retained>,
    /// The size of the retained windows in bytes.
    bytes: u64,
    /// The windows that were set aside, oldest first.
    damaged: VecDeque<Arc<StoredWindow>>,
    /// The newest window, once it is acknowledged.
    acknowledged: Option<Arc<StoredWindow>>,
    /// True once the windows were removed together with their probe.
    pub removed: bool,
}

#[derive(Debug)]
struct Retained {
    window: Arc<StoredWindow>,
    taken: bool,
}

impl Retained {
    fn is_page(&self) -> bool {
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

/// A plan in the making: the windows before `from` are gone, and the window of a page.
struct Draft<'a> {
    index: &'a Index,
    change: Change,
    from: u64,
    page: Option<u64>,
    /// The number and the size of the windows that are left, with the new one.
    count: usize,
    bytes: u64,
    damaged: usize,
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

    fn draft(&self) -> Draft<'_> {
        let change = Change { state: self.state.clone(), ..Change::default() };
        let (count, bytes) = (self.retained.len(), self.bytes());
        Draft { index: self, change, from: 0, page: None, count, bytes, damaged: 0 }
    }

    /// Plans a window.
    pub fn insert(&self, window: Arc<StoredWindow>) -> Change {
        let (seq, is_page) = (window.seq(), window.closed_by == ClosedBy::Page);
        let mut draft = self.draft();
        draft.reclaim(seq);
        let (state, reports) = (&mut draft.change.state, window.reports);
        if state.first == 0 {
            state.first = seq;
        }
        state.reported += reports;
        draft.change.gone.extend(self.acknowledged.iter().cloned());
        draft.bytes -= self.acknowledged.as_ref().map_or(0, |window| window.entry.bytes);
        if let Some((page, kept)) = self.retained.last_key_value().filter(|(_, last)| last.is_page()) {
            (draft.page, draft.count) = (Some(*page), draft.count - 1);
            draft.bytes -= kept.window.entry.bytes;
            draft.change.gone.push(Arc::clone(&kept.window));
        }
        draft.change.baselines_gone.extend(self.baselines.keys().filter(|(of, _)| *of <= seq));
        draft.count += 1;
        // The window of a page drives out no other.
        let page_bytes = if is_page { window.entry.bytes } else { 0 };
        draft.bytes += window.entry.bytes - page_bytes;
        draft.change.new = Some(window);
        draft.retire(usize::from(is_page));
        // The row of the window says that it is the last one.
        let mut change = draft.change;
        change.saves = change.state != self.state;
        (change.state.last, change.state.reported_through) = (seq, seq);
        change
    }

    /// Plans that the limits, which are set already, are kept. Collectors that are no longer named lose their cursors.
    pub fn keep_limits(&self) -> Change {
        let mut draft = self.draft();
        draft.change.state.collectors.retain(|name, _| self.limits.collectors.contains(name));
        draft.release();
        let page = self.retained.values().next_back().filter(|last| last.is_page());
        draft.bytes -= page.map_or(0, |page| page.window.entry.bytes);
        draft.retire(usize::from(page.is_some()));
        draft.finish()
    }

    /// Plans that all windows up to `seq` are acknowledged, for one collector or for all.
    pub fn acknowledge(&self, seq: u64, collector: Option<&str>) -> Result<Change, AckError> {
        let cursor = collector.map(|name| self.acknowledged(name)).transpose()?;
        if seq > self.state.last {
            return Err(AckError::Beyond { newest: self.state.last });
        }
        let mut draft = self.draft();
        match collector {
            Some(name) if Some(seq) > cursor => {
                draft.change.state.collectors.insert(name.to_owned(), seq);
            }
            Some(_) => {}
            None => draft.acknowledge_for_all(seq),
        }
        draft.release();
        Ok(draft.finish())
    }

    /// Plans that the oldest window goes. `None` if it is the only one.
    pub fn drop_oldest(&self) -> Option<Change> {
        let mut draft = self.draft();
        draft.drop_oldest().then(|| draft.finish())
    }

    /// Plans that the oldest window goes that was set aside. `None` if there is none.
    pub fn drop_damaged(&self) -> Option<Change> {
        let mut draft = self.draft();
        draft.drop_damaged().then(|| draft.finish())
    }

    /// Plans that a window is set aside. `None` if the window is not in the index any more.
    pub fn damage(&self, id: i64) -> Option<Change> {
        let mut draft = self.draft();
        let retained = self.retained.values().map(|kept| &kept.window).find(|window| window.id == id);
        if let Some(window) = retained {
            draft.change.state.damaged += 1;
            draft.lose(window.seq(), self.retained.keys().next().copied());
            draft.change.forms.push((Arc::clone(window), Form::Damaged));
        } else {
            let window = self.acknowledged.as_ref().filter(|window| window.id == id)?;
            draft.change.forms.push((Arc::clone(window), Form::Damaged));
        }
        while self.damaged.len() + 1 - draft.damaged > DAMAGED_WINDOWS && draft.drop_damaged() {}
        Some(draft.finish())
    }

    /// Plans that a window counts as damaged whose row was set aside by a start, because not even its number is of use.
    pub fn count_damaged(&self, id: i64) -> Option<Change> {
        let window = self.damaged.iter().find(|window| window.id == id)?;
        let mut draft = self.draft();
        draft.change.state.damaged += 1;
        draft.change.forms.push((Arc::clone(window), Form::Damaged));
        Some(draft.finish())
    }

    /// Plans that the state is written with the number of the last window, which a row alone says otherwise.
    pub fn save(&self) -> Change {
        Change { saves: true, ..self.draft().change }
    }

    /// Counts the windows as damaged that the state knows and the store has not. The last window of all is always in the
    /// store, or it is known what has become of it.
    pub fn lose_vanished(&mut self, probe: &str) {
        let newest = self.newest().map_or(0, |window| window.seq()).max(self.state.acknowledged);
        for seq in newest + 1..=self.state.last {
            if !self.state.lost.contains(seq) && !self.state.outlived.contains(seq) {
                tracing::error!(probe, seq, "a window is damaged: its row is not there");
                self.state.lost.add(seq, u64::MAX);
                self.state.damaged += 1;
            }
        }
    }

    /// Plans that a window is taken. `None` if it is already, or has gone.
    pub fn take(&self, seq: u64) -> Option<Change> {
        let kept = self.retained.get(&seq).filter(|kept| !kept.taken)?;
        let forms = vec![(Arc::clone(&kept.window), Form::Taken)];
        Some(Change { forms, ..self.draft().finish() })
    }

    /// Plans that baselines go.
    pub fn forget_baselines(&self, is_gone: impl Fn(u64, u64) -> bool) -> Change {
        let gone = self.baselines.keys().copied().filter(|&(seq, serial)| is_gone(seq, serial));
        Change { baselines_gone: gone.collect(), ..self.draft().finish() }
    }

    /// Plans a baseline.
    pub fn add_baseline(&self, key: (u64, u64), baseline: Baseline) -> Change {
        let baselines_gone = self.baselines.contains_key(&key).then_some(key).into_iter().collect();
        Change { baseline: Some((key, baseline)), baselines_gone, ..self.draft().finish() }
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

impl Draft<'_> {
    fn finish(mut self) -> Change {
        self.change.saves = self.change.state != self.index.state;
        self.change
    }

    /// Takes back that the last window was lost, so that it can be stored again.
    fn reclaim(&mut self, seq: u64) {
        if self.index.is_reclaimed(seq) {
            self.change.state.lost.take_back(seq);
        }
    }

    /// The oldest window that is left, unless it is the new one.
    fn oldest(&self) -> Option<&Retained> {
        let mut left = self.index.retained.range(self.from..);
        left.find(|(seq, _)| Some(**seq) != self.page).map(|(_, kept)| kept)
    }

    /// Takes the oldest window out.
    fn pop(&mut self) -> Option<(Arc<StoredWindow>, bool)> {
        let kept = self.oldest()?;
        let (window, taken) = (Arc::clone(&kept.window), kept.taken);
        self.from = window.seq() + 1;
        self.count -= 1;
        self.bytes -= window.entry.bytes;
        Some((window, taken))
    }

    fn lose(&mut self, seq: u64, oldest: Option<u64>) {
        self.change.state.lost.add(seq, oldest.unwrap_or(u64::MAX));
    }

    fn drop_oldest(&mut self) -> bool {
        if self.count < 2 {
            return false;
        }
        let Some((window, taken)) = self.pop() else { return false };
        if !(taken && self.index.limits.taken_counts) {
            let new = self.change.new.as_ref().map(|new| new.seq());
            let oldest = self.oldest().map(|kept| kept.window.seq()).or(new);
            match self.index.limits.collectors.is_empty() {
                true => self.change.state.outlived.add(window.seq(), oldest.unwrap_or(u64::MAX)),
                false => self.lose(window.seq(), oldest),
            }
        }
        self.change.gone.push(window);
        true
    }

    fn drop_damaged(&mut self) -> bool {
        let Some(window) = self.index.damaged.get(self.damaged) else { return false };
        self.damaged += 1;
        self.bytes -= window.entry.bytes;
        self.change.gone.push(Arc::clone(window));
        true
    }

    /// Acknowledges the windows that all collectors have acknowledged.
    fn release(&mut self) {
        let cursors = self.index.limits.collectors.iter().map(|name| self.change.state.cursor(name));
        if let Some(seq) = cursors.min() {
            self.acknowledge_for_all(seq);
        }
    }

    fn acknowledge_for_all(&mut self, seq: u64) {
        if seq <= self.change.state.acknowledged {
            return;
        }
        self.change.state.acknowledged = seq;
        while self.oldest().is_some_and(|kept| kept.window.seq() <= seq) {
            let Some((window, _)) = self.pop() else { return };
            if self.count == 0 {
                // The newest one stays, because it has the sums.
                self.change.gone.extend(self.index.acknowledged.iter().cloned());
                self.bytes += window.entry.bytes;
                self.change.forms.push((window, Form::Acknowledged));
            } else {
                self.change.gone.push(window);
            }
        }
    }

    /// Drops the oldest windows until the limits are met. `pages` windows are those of pages.
    fn retire(&mut self, pages: usize) {
        let limits = &self.index.limits;
        while self.count - pages > limits.retain && self.drop_oldest() {}
        // A damaged window is of no use to a collector: it goes before any other.
        while self.bytes > limits.bytes && (self.drop_damaged() || self.drop_oldest()) {}
    }
}
