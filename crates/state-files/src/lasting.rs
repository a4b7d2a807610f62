//! Files that survive a power failure, and locks that one process has.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::private::{Lock, try_lock};

/// The prefix of an unfinished file.
pub const TEMPORARY: &str = ".new-";

/// Syncs a file or a directory: the content of the file, or renames and removals in the directory,
/// then outlive a power failure.
pub fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Locks the file at `path`, and creates it if it is missing. Returns the file, which must stay
/// open; `None` if another daemon has the lock. Temporary files are made in `directory`.
pub fn lock(path: &Path, directory: &Path) -> io::Result<Option<Vec<File>>> {
    // An existing file is opened for reading: the daemon can adopt probes even if the file system
    // is read-only, and a file held for writing would prevent a read-only remount of the file
    // system.
    let open = || File::open(path);
    let create = || {
        File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
    };
    let file = open().or_else(|_| create().and_then(|_| open()))?;
    let found = try_lock(&file)?;
    if found == Lock::Held {
        return Ok(None);
    }
    if file.metadata()?.mode() & 0o077 == 0 {
        return Ok(Some(vec![file]));
    }
    // Everybody could open the file of an earlier version. A process with an open descriptor can
    // lock that file at any time, so the daemon replaces it by a new file. The old file stays
    // locked as well, because the earlier version knows only the old one.
    let new = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .tempfile_in(directory);
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
