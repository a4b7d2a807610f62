//! The plans of changes: the effect of a new window, an acknowledgement or a limit on the windows
//! of a probe.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::body::head::ClosedBy;
use crate::body::stored::StoredWindow;
use crate::index::index::{IndexChange, RetainedEntry, WindowIndex};
use crate::retention::{AckError, DAMAGED_WINDOWS};
use crate::rows::{Baseline, Form};

/// A plan that is being made. It removes the windows before `from`, and the window of a page.
struct Draft<'a> {
    index: &'a WindowIndex,
    change: IndexChange,
    from: u64,
    page: Option<u64>,
    /// The number and the size of the windows that remain, including the new window.
    count: usize,
    bytes: u64,
    damaged: usize,
    /// The newest window, if the plan acknowledges it or leaves it acknowledged.
    acknowledged: Option<Arc<StoredWindow>>,
    /// The window that is set aside.
    aside: Option<i64>,
    /// The windows that are in no list after the plan. They stay as long as others build on them.
    unlisted: BTreeMap<u64, Arc<StoredWindow>>,
}

impl WindowIndex {
    fn draft(&self) -> Draft<'_> {
        let change = IndexChange {
            state: self.state.clone(),
            ..IndexChange::default()
        };
        let (count, bytes) = (self.retained.len(), self.bytes());
        Draft {
            index: self,
            change,
            from: 0,
            page: None,
            count,
            bytes,
            damaged: 0,
            acknowledged: self.acknowledged.clone(),
            aside: None,
            unlisted: self.built_on.clone(),
        }
    }

    /// Plans the insertion of a window.
    pub fn insert(&self, window: Arc<StoredWindow>) -> IndexChange {
        let (seq, is_page) = (window.seq(), window.closed_by == ClosedBy::Page);
        let mut draft = self.draft();
        draft.reclaim(seq);
        let (state, reports) = (&mut draft.change.state, window.reports);
        if state.first == 0 {
            state.first = seq;
        }
        state.reported += reports;
        let acknowledged = draft.acknowledged.take();
        acknowledged
            .into_iter()
            .for_each(|window| draft.unlist(window));
        if let Some((page, kept)) = self
            .retained
            .last_key_value()
            .filter(|(_, last)| last.is_page())
        {
            (draft.page, draft.count) = (Some(*page), draft.count - 1);
            draft.unlist(Arc::clone(&kept.window));
        }
        draft
            .change
            .baselines_gone
            .extend(self.baselines.keys().filter(|(of, _)| *of <= seq));
        draft.count += 1;
        // The window of a page replaces no other window.
        let page_bytes = if is_page { window.entry.bytes } else { 0 };
        draft.bytes += window.entry.bytes - page_bytes;
        draft.change.new = Some(window);
        draft.let_go();
        draft.retire(usize::from(is_page));
        // The row of the window says that it is the last one.
        let mut change = draft.finish();
        (change.state.last, change.state.reported_through) = (seq, seq);
        change
    }

    /// Plans the removals that the present limits demand. Collectors without a name in the
    /// configuration lose their cursors.
    pub fn keep_limits(&self) -> IndexChange {
        let mut draft = self.draft();
        draft
            .change
            .state
            .collectors
            .retain(|name, _| self.limits.collectors.contains(name));
        draft.release();
        let page = self
            .retained
            .values()
            .next_back()
            .filter(|last| last.is_page());
        draft.bytes -= page.map_or(0, |page| page.window.entry.bytes);
        draft.retire(usize::from(page.is_some()));
        draft.finish()
    }

    /// Plans to acknowledge all windows up to `seq`, for one collector or for all.
    pub fn acknowledge(&self, seq: u64, collector: Option<&str>) -> Result<IndexChange, AckError> {
        let cursor = collector.map(|name| self.acknowledged(name)).transpose()?;
        if seq > self.state.last {
            return Err(AckError::Beyond {
                newest: self.state.last,
            });
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

    /// Plans to remove the acknowledged windows that no holder keeps any more. `None` if there is
    /// no such window.
    pub fn remove_released(&self) -> Option<IndexChange> {
        let released = self.released();
        self.retained
            .first_key_value()
            .filter(|(first, _)| **first <= released)?;
        let mut draft = self.draft();
        draft.remove_through(released);
        Some(draft.finish())
    }

    /// Plans to remove the oldest window and the windows that depend on it. `None` if the newest
    /// window is among them.
    pub fn drop_oldest(&self) -> Option<IndexChange> {
        let last = self.oldest()?.seq();
        let mut draft = self.draft();
        while draft
            .oldest()
            .is_some_and(|oldest| oldest.window.seq() <= last)
            && draft.drop_oldest()
        {}
        Some(draft.finish())
    }

    /// Plans to remove the oldest window that was set aside. `None` if there is none.
    pub fn drop_damaged(&self) -> Option<IndexChange> {
        let mut draft = self.draft();
        draft.drop_damaged().then(|| draft.finish())
    }

    /// Plans to set a window aside. `None` if the window is not in the index any more.
    pub fn damage(&self, id: i64) -> Option<IndexChange> {
        let mut draft = self.draft();
        let retained = self
            .retained
            .values()
            .map(|kept| &kept.window)
            .find(|window| window.id == id);
        if let Some(window) = retained {
            draft.change.state.damaged += 1;
            draft.lose(window.seq(), self.retained.keys().next().copied());
            draft.change.forms.push((Arc::clone(window), Form::Damaged));
            draft.aside = Some(id);
        } else {
            let window = self
                .acknowledged
                .as_ref()
                .filter(|window| window.id == id)?;
            draft.change.forms.push((Arc::clone(window), Form::Damaged));
            draft.acknowledged = None;
        }
        while self.damaged.len() + 1 - draft.damaged > DAMAGED_WINDOWS && draft.drop_damaged() {}
        Some(draft.finish())
    }

    /// Plans to count a damaged window that a start has set aside, because even its number can't be
    /// used.
    pub fn count_damaged(&self, id: i64) -> Option<IndexChange> {
        let window = self.damaged.iter().find(|window| window.id == id)?;
        let mut draft = self.draft();
        draft.change.state.damaged += 1;
        draft.change.forms.push((Arc::clone(window), Form::Damaged));
        Some(draft.finish())
    }

    /// Plans to write the state with the number of the last window. Otherwise only a row contains
    /// this number.
    pub fn save(&self) -> IndexChange {
        IndexChange {
            saves: true,
            ..self.draft().change
        }
    }

    /// Plans to mark a window as taken. `None` if the window is already marked or was removed.
    pub fn take(&self, seq: u64) -> Option<IndexChange> {
        let kept = self.retained.get(&seq).filter(|kept| !kept.taken)?;
        let forms = vec![(Arc::clone(&kept.window), Form::Taken)];
        Some(IndexChange {
            forms,
            ..self.draft().finish()
        })
    }

    /// Plans to remove baselines.
    pub fn forget_baselines(&self, is_gone: impl Fn(u64, u64) -> bool) -> IndexChange {
        let gone = self
            .baselines
            .keys()
            .copied()
            .filter(|&(seq, serial)| is_gone(seq, serial));
        IndexChange {
            baselines_gone: gone.collect(),
            ..self.draft().finish()
        }
    }

    /// Plans the insertion of a baseline.
    pub fn add_baseline(&self, key: (u64, u64), baseline: Baseline) -> IndexChange {
        let baselines_gone = self
            .baselines
            .contains_key(&key)
            .then_some(key)
            .into_iter()
            .collect();
        IndexChange {
            baseline: Some((key, baseline)),
            baselines_gone,
            ..self.draft().finish()
        }
    }
}

impl Draft<'_> {
    fn finish(mut self) -> IndexChange {
        self.let_go();
        let known = |window: &StoredWindow| {
            self.index
                .built_on
                .get(&window.seq())
                .is_some_and(|known| known.id == window.id)
        };
        let new = self
            .unlisted
            .values()
            .filter(|window| !known(window))
            .cloned();
        self.change
            .forms
            .extend(new.map(|window| (window, Form::BuiltOn)));
        self.change.saves = self.change.state != self.index.state;
        self.change
    }

    /// Takes back the loss of the last window, so that the window can be stored again.
    fn reclaim(&mut self, seq: u64) {
        if self.index.is_reclaimed(seq) {
            self.change.state.lost.take_back(seq);
        }
    }

    /// Returns the oldest remaining window, unless it is the new window.
    fn oldest(&self) -> Option<&RetainedEntry> {
        let mut left = self.index.retained.range(self.from..);
        left.find(|(seq, _)| Some(**seq) != self.page)
            .map(|(_, kept)| kept)
    }

    /// Takes the oldest window out.
    fn pop(&mut self) -> Option<(Arc<StoredWindow>, bool)> {
        let kept = self.oldest()?;
        let (window, taken) = (Arc::clone(&kept.window), kept.taken);
        self.from = window.seq() + 1;
        self.count -= 1;
        Some((window, taken))
    }

    /// Takes a window out of all lists.
    fn unlist(&mut self, window: Arc<StoredWindow>) {
        self.unlisted.insert(window.seq(), window);
    }

    /// Removes the windows that are in no list, and on which no other window builds.
    fn let_go(&mut self) {
        let needless = |seq: &u64| !self.is_built_on(*seq);
        let gone: Vec<u64> = self.unlisted.keys().copied().filter(needless).collect();
        for window in gone
            .iter()
            .filter_map(|seq| self.unlisted.remove(seq))
            .collect::<Vec<_>>()
        {
            self.bytes -= window.entry.bytes;
            self.change.gone.push(window);
        }
    }

    /// Tells whether a window that stays builds on window `seq`. If a retained window builds on
    /// `seq`, the next retained window does so as well.
    fn is_built_on(&self, seq: u64) -> bool {
        let retained = self
            .index
            .retained
            .range((seq + 1).max(self.from)..)
            .map(|(_, kept)| &kept.window);
        let mut retained = retained
            .filter(|window| Some(window.seq()) != self.page && Some(window.id) != self.aside);
        let others = self
            .acknowledged
            .iter()
            .chain(&self.change.new)
            .filter(|window| window.seq() > seq);
        retained
            .next()
            .into_iter()
            .chain(others)
            .any(|window| window.from <= seq)
    }

    /// Tells whether the oldest window can be removed to make room, together with the windows that
    /// depend on it.
    fn makes_room(&self) -> bool {
        let last = self
            .index
            .retained
            .values()
            .next_back()
            .map(|kept| &kept.window);
        let newest = self
            .change
            .new
            .as_ref()
            .or(self.acknowledged.as_ref())
            .or(last);
        let from = newest.map_or(0, |newest| newest.from);
        self.oldest()
            .is_some_and(|oldest| oldest.window.seq() < from)
    }

    fn lose(&mut self, seq: u64, oldest: Option<u64>) {
        self.change.state.lost.add(seq, oldest.unwrap_or(u64::MAX));
    }

    fn drop_oldest(&mut self) -> bool {
        if self.count < 2 {
            return false;
        }
        let Some((window, taken)) = self.pop() else {
            return false;
        };
        let is_acknowledged = window.seq() <= self.change.state.acknowledged;
        let is_served = is_acknowledged || taken && self.index.limits.taken_counts;
        if !is_served {
            let new = self.change.new.as_ref().map(|new| new.seq());
            let oldest = self.oldest().map(|kept| kept.window.seq()).or(new);
            match self.index.limits.collectors.is_empty() {
                true => self
                    .change
                    .state
                    .outlived
                    .add(window.seq(), oldest.unwrap_or(u64::MAX)),
                false => self.lose(window.seq(), oldest),
            }
        }
        self.unlist(window);
        self.let_go();
        true
    }

    fn drop_damaged(&mut self) -> bool {
        let Some(window) = self.index.damaged.get(self.damaged) else {
            return false;
        };
        self.damaged += 1;
        self.bytes -= window.entry.bytes;
        self.change.gone.push(Arc::clone(window));
        true
    }

    /// Acknowledges the windows that all named collectors have acknowledged.
    fn release(&mut self) {
        let cursors = self
            .index
            .limits
            .collectors
            .iter()
            .map(|name| self.change.state.cursor(name));
        if let Some(seq) = cursors.min() {
            self.acknowledge_for_all(seq);
        }
    }

    fn acknowledge_for_all(&mut self, seq: u64) {
        if seq <= self.change.state.acknowledged {
            return;
        }
        self.change.state.acknowledged = seq;
        let released = self
            .index
            .holders
            .values()
            .fold(seq, |released, &used| released.min(used));
        self.remove_through(released);
    }

    /// Removes acknowledged windows.
    fn remove_through(&mut self, seq: u64) {
        while self.oldest().is_some_and(|kept| kept.window.seq() <= seq) {
            let Some((window, _)) = self.pop() else {
                return;
            };
            if self.count == 0 {
                // The newest window stays, because it has the sums.
                let before = self.acknowledged.replace(Arc::clone(&window));
                before.into_iter().for_each(|window| self.unlist(window));
                self.change.forms.push((window, Form::Acknowledged));
            } else {
                self.unlist(window);
            }
        }
        self.let_go();
    }

    /// Drops the oldest windows until the limits are met. `pages` is the number of windows that
    /// belong to pages.
    fn retire(&mut self, pages: usize) {
        let limits = &self.index.limits;
        while self.count - pages > limits.retain && self.drop_oldest() {}
        // A collector can't use a damaged window: it is removed before all other windows.
        while self.bytes > limits.bytes
            && (self.drop_damaged() || self.makes_room() && self.drop_oldest())
        {}
    }
}
