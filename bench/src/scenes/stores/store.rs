//! The duties of a store of windows.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

/// The number of windows of a writer that a store keeps.
pub const RETAINED: u64 = 32;

/// A window that a writer has closed.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    pub writer: usize,
    pub seq: u64,
    pub content: &'a [u8],
}

impl Window<'_> {
    /// The number of the window that this one replaces.
    pub fn superseded(&self) -> Option<u64> {
        self.seq.checked_sub(RETAINED).filter(|seq| *seq > 0)
    }
}

/// A store that many writers share.
pub trait Store: Send + Sync {
    /// Returns after all windows are synced to disk, and superseded ones are removed.
    fn put(&self, windows: &[Window<'_>]) -> Result<()>;

    /// The number of syncs so far, at least.
    fn syncs(&self) -> u64;
}

/// Opens a store in an empty directory.
pub type Open = fn(&Path) -> Result<Box<dyn Store>>;

/// The windows that a store keeps, by writer and number.
pub type Kept = BTreeMap<(usize, u64), Vec<u8>>;
