//! Files and directories of the state directory, and why they can't be used.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the state directory {0} is in use by another twinprobe; give each its own --state-dir")]
    InUse(PathBuf),
    #[error("{action} {path} failed")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The prefixes of temporary files: of a file that is being written, and of a replaced file until the new one is on
/// disk to stay.
pub const TEMPORARY: [&str; 2] = [".new-", ".old-"];

pub fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

/// Syncs a directory: renames and removals in it then outlive a power failure.
pub fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
