//! Windows that build on one another: one has whole sums, and the next ones hold changes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::body::head::WindowHead;
use crate::body::stored::StoredWindow;
use crate::windows::Windows;

impl Windows {
    /// Returns the windows after number `since` whose changes lead from the sums of `since` to the
    /// sums of `window`, which is the last one; `None` if `window` has whole sums, or does not
    /// build on `since`.
    pub fn since(&self, since: u64, window: &Arc<StoredWindow>) -> Option<Vec<Arc<StoredWindow>>> {
        if window.from > since || window.seq() <= since {
            return None;
        }
        let mut between = self.index.lock().below(window);
        between.retain(|below| below.seq() > since);
        between.push(Arc::clone(window));
        Some(between)
    }

    /// Returns the windows whose changes give the sums of `window`: the first has whole sums, and
    /// the last is the window itself.
    pub fn chain(&self, window: &Arc<StoredWindow>) -> Vec<Arc<StoredWindow>> {
        let mut chain = self.index.lock().below(window);
        chain.push(Arc::clone(window));
        chain
    }

    /// Returns the number of the window whose sums the changes in the next window can refer to;
    /// `None` if the next window must have whole sums.
    pub fn base_of_changes(&self) -> Option<u64> {
        let base = self.index.lock().base().map(|base| base.seq());
        base.filter(|_| !self.begins_anew.load(Ordering::Relaxed))
    }

    /// Demands whole sums in the next window, so that no later window builds on the existing
    /// windows.
    pub fn begin_anew(&self) {
        self.begins_anew.store(true, Ordering::Relaxed);
    }

    /// Returns the number of the window with whole sums that begins the chain of a new window,
    /// which holds the changes since `since`.
    pub fn from_of(&self, since: u64) -> io::Result<u64> {
        let newest = self.newest().filter(|newest| newest.seq() == since);
        newest.map(|newest| newest.from).ok_or_else(|| {
            io::Error::other(format!(
                "window {since}, which it was to build on, is no longer the newest"
            ))
        })
    }

    /// Notes that a window is on disk. `head` is the window's head if later windows can hold the
    /// changes since this window.
    pub fn note_stored(&self, window: &StoredWindow, head: Option<Arc<WindowHead>>) {
        if window.from == window.seq() {
            self.begins_anew.store(false, Ordering::Relaxed);
        }
        if let Some(head) = head {
            self.whole_heads.insert(window.id, head);
        }
    }

    /// Returns the head that the body of a window gets. It lacks the metrics that the window with
    /// whole sums describes, if the head of that window is in memory. This never waits for a disk.
    pub fn head_of_body(&self, head: &WindowHead, from: u64) -> Option<WindowHead> {
        head.changes.as_ref()?;
        let index = self.index.lock();
        let newest = index.newest()?;
        let below = index.below(newest);
        let whole = below.first().unwrap_or(newest);
        let id = (whole.seq() == from).then_some(whole.id)?;
        drop(index);
        head.without_described(&*self.whole_heads.get(id)?)
    }
}
