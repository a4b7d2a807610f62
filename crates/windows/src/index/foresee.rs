//! The state that a window will lead to, so that the log has both by one write.

use crate::file::head::ClosedBy;
use crate::file::stored::StoredWindow;
use crate::index::Index;
use crate::state::State;

impl Index {
    /// Returns the state that [`Self::insert`] of this window leads to if nothing changes before; `None` if it needs not be
    /// written.
    pub fn state_with(&self, window: &StoredWindow, reports: u64) -> Option<State> {
        let page = self.retained.last_key_value().filter(|(_, last)| last.is_page()).map(|(seq, _)| *seq);
        let kept = || self.retained.iter().filter(move |(seq, _)| Some(**seq) != page);
        let page_bytes =
            page.and_then(|page| self.retained.get(&page)).map_or(0, |page| page.window.entry.bytes);
        // The window of a page drives out no other, and the newest stays.
        let mut count = self.retained.len() - usize::from(page.is_some());
        let mut bytes = self.bytes + self.beside - page_bytes;
        if window.closed_by != ClosedBy::Page {
            (count, bytes) = (count + 1, bytes + window.entry.bytes);
        }
        let mut damaged = self.damaged.iter().map(|(_, bytes)| *bytes);
        let mut oldest = kept().peekable();
        let mut lost = Vec::new();
        loop {
            let is_many = count > self.limits.retain;
            if !is_many && bytes <= self.limits.bytes {
                break;
            }
            if !is_many && let Some(damaged) = damaged.next() {
                bytes -= damaged;
                continue;
            }
            let Some((seq, gone)) = oldest.next() else { break };
            (count, bytes) = (count - 1, bytes - gone.window.entry.bytes);
            if !(gone.taken && self.limits.taken_counts) {
                let next = oldest.peek().map_or(window.seq(), |(seq, _)| **seq);
                lost.push((*seq, next));
            }
        }
        if !self.unsaved && self.state.first > 0 && reports == 0 && lost.is_empty() {
            return None;
        }
        let mut state = self.state.clone();
        if state.first == 0 {
            state.first = window.seq();
        }
        state.last = window.seq();
        state.reported += reports;
        state.reported_through = window.seq();
        for (seq, oldest) in lost {
            state.unclaimed += u64::from(self.limits.collectors.is_empty());
            state.lost.add(seq, oldest);
        }
        Some(state)
    }
}
