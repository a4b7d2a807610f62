//! The plans of changes: what a new window, an acknowledgement or a limit does to the windows of a probe.

use std::sync::Arc;

use crate::body::head::ClosedBy;
use crate::body::stored::StoredWindow;
use crate::index::index::{Change, Index, Retained};
use crate::retention::{AckError, DAMAGED_WINDOWS};
use crate::rows::{Baseline, Form};

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
