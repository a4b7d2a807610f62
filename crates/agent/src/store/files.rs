//! Files and directories of the state directory, and why they can't be used.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use twinprobe_kernel::private::{Lock, try_lock};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the state directory {0} is in use by another twinprobe; give each its own --state-dir")]
    InUse(PathBuf),
    #[error(transparent)]
    Open(#[from] twinprobe_store::OpenError),
    #[error("{what} can't be written to the store")]
    Write {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("{what} can't be read from the store")]
    Read {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("{action} {path} failed")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The prefix of a file that is being written.
pub const TEMPORARY: &str = ".new-";

pub fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

/// Syncs a file or a directory: the content of the file, or renames and removals in the directory, then outlive a power
/// failure.
pub fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Locks the file at `path`, which is made if it is not there. Returns what has to be kept open; `None` if another daemon
/// has the lock. Temporary files are made in `directory`.
pub fn lock(path: &Path, directory: &Path) -> io::Result<Option<Vec<File>>> {
    // An existing file is opened for reading: the daemon can adopt probes even while the file system is read-only,
    // and a file held for writing would keep the file system from being remounted read-only.
    let open = || File::open(path);
    let create = || File::options().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open().or_else(|_| create().and_then(|_| open()))?;
    let found = try_lock(&file)?;
    if found == Lock::Held {
        return Ok(None);
    }
    if file.metadata()?.mode() & 0o077 == 0 {
        return Ok(Some(vec![file]));
    }
    // Everybody could open the file that an earlier version has made, and who has it open can lock it at any time. The
    // earlier version itself knows this file only.
    let new = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(directory);
    let replaced = new.and_then(|new| {
        try_lock(new.as_file())?;
        Ok(new.persist(path)?)
    });
    match replaced {
        Ok(new) => Ok(Some(vec![file, new])),
        Err(_) if found == Lock::Taken => Ok(Some(vec![file])),
        Err(error) => Err(error),
    }
}

/// Returns the bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
