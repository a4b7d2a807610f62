//! Windows that a part of the daemon must read before their removal, however fast their collectors
//! are.

use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_store::Durable;

use crate::windows::Windows;

impl Windows {
    /// Keeps the windows after `used` until the holder has used them, even if they are
    /// acknowledged. Acknowledged windows that are kept are in no list, and limits remove them
    /// first. `None` ends the hold. After a start of the daemon, no window has a holder.
    pub fn hold(&self, holder: &str, used: Option<u64>) {
        let mut index = self.index.lock();
        match used {
            Some(used) => drop(index.holders.insert(holder.to_owned(), used)),
            None => drop(index.holders.remove(holder)),
        }
        if index.remove_released().is_none() {
            return;
        }
        drop(index);
        let turn = self.turn();
        let change = self.index.lock().remove_released();
        // A failure was logged, and the next call removes these windows as well.
        let _ = change.map(|change| self.change(turn, change, Durable::Soon));
    }

    /// Returns the first window after this one, acknowledged or not.
    pub fn next_after(&self, seq: u64) -> Option<WindowEntry> {
        self.index.lock().after(seq).next().cloned()
    }
}
