//! Windows of the index that build on one another. They can only be removed together.

use std::sync::Arc;

use crate::body::stored::StoredWindow;
use crate::index::index::WindowIndex;

/// The most windows in one chain: one window with whole sums, and later windows with changes.
const WINDOWS_TOGETHER: usize = 64;
/// The largest size of these windows together, as a multiple of the size of the window with whole
/// sums.
const LONGEST_CHANGES: u64 = 8;

impl WindowIndex {
    /// Returns the windows on which this window builds, oldest first.
    pub fn below(&self, window: &StoredWindow) -> Vec<Arc<StoredWindow>> {
        let range = window.from..window.seq();
        let retained = self
            .retained
            .range(range.clone())
            .map(|(_, kept)| &kept.window);
        let built_on = self.built_on.range(range.clone()).map(|(_, window)| window);
        let acknowledged = self
            .acknowledged
            .iter()
            .filter(|window| range.contains(&window.seq()));
        let mut below: Vec<_> = retained
            .chain(built_on)
            .chain(acknowledged)
            .cloned()
            .collect();
        below.sort_by_key(|window| window.seq());
        below
    }

    /// Returns the window on which the next window can build; `None` if the next window must have
    /// whole sums. Windows that build on one another are removed together, so such a chain must
    /// have few windows and take a small part of the limits.
    pub fn base(&self) -> Option<&Arc<StoredWindow>> {
        let newest = self.newest()?;
        let below = self.below(newest);
        let bytes = newest.entry.bytes + below.iter().map(|window| window.entry.bytes).sum::<u64>();
        let whole = below.first().unwrap_or(newest).entry.bytes;
        let is_room =
            bytes <= self.limits.bytes / 2 && bytes <= whole.saturating_mul(LONGEST_CHANGES);
        (below.len() + 1 < WINDOWS_TOGETHER && is_room).then_some(newest)
    }

    /// Returns the windows that can only be removed together with the newest window, including it:
    /// their number, their total size and the largest size.
    pub fn together(&self) -> (usize, u64, u64) {
        let below = self
            .newest()
            .map(|newest| self.below(newest))
            .unwrap_or_default();
        let sizes = || {
            below
                .iter()
                .chain(self.newest())
                .map(|window| window.entry.bytes)
        };
        (
            sizes().count(),
            sizes().sum(),
            sizes().max().unwrap_or_default(),
        )
    }

    /// Returns the last one of the windows that a limit would remove next; `None` if the newest
    /// window is among them.
    pub fn oldest(&self) -> Option<&Arc<StoredWindow>> {
        let from = self.newest()?.from;
        let mut retained = self.retained.values().map(|kept| &kept.window);
        let first = retained.next()?;
        let last = retained
            .take_while(|window| window.from <= first.seq())
            .last()
            .unwrap_or(first);
        (last.seq() < from).then_some(last)
    }
}
