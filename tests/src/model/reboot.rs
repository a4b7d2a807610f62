//! What the disk says after a simulated reboot.

use std::fs;

use anyhow::Result;

pub use crate::reboot::forget;

use crate::Directories;

/// Returns the number of the last window of a probe on disk, 0 if there is none.
pub fn newest(directories: &Directories, probe: &str) -> Result<u64> {
    let directory = directories.state().join("windows").join(probe);
    let mut newest = 0;
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let name = entry?.file_name();
        // Only the names of windows count; a baseline belongs to the open window.
        let window =
            name.to_str().and_then(|name| name.split_once('.')).filter(|(_, form)| *form != "damaged");
        let number = window.filter(|(_, form)| !form.contains('.')).and_then(|(seq, _)| seq.parse().ok());
        newest = newest.max(number.unwrap_or_default());
    }
    Ok(newest)
}
