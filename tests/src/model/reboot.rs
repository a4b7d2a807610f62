//! The state of the disk after a simulated reboot.

use anyhow::Result;

pub use crate::reboot::forget;
use crate::{Directories, Store};

/// Returns the number of the last window of a probe on disk, 0 if there is none.
pub fn newest(directories: &Directories, probe: &str) -> Result<u64> {
    Store::open(directories)?.newest(probe)
}
