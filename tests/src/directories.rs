//! Where a daemon keeps what outlives it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use tempfile::TempDir;

use crate::netns::{is_stale, unique_prefix};
use crate::tmpfs::{self, Tmpfs};

const BPFFS: &str = "/sys/fs/bpf";
/// What directories of tests are called, before what [`unique_prefix`] gives.
const PREFIX: &str = "twinprobe-test-";

/// What outlives one process of the daemon: socket, state, pins.
#[derive(Debug)]
pub struct Directories {
    /// Unmounted before its place is removed.
    state: Option<Tmpfs>,
    temporary: TempDir,
    bpffs: PathBuf,
    /// Whether the pins are another's.
    borrowed: bool,
}

impl Directories {
    pub fn new() -> Result<Self> {
        let name = format!("{PREFIX}{}", unique_prefix());
        tmpfs::unmount_stale(is_left_behind);
        remove_stale(Path::new(BPFFS));
        remove_stale(&env::temp_dir());
        let temporary = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir()?;
        Ok(Self { state: None, temporary, bpffs: Path::new(BPFFS).join(name), borrowed: false })
    }

    /// With a state of its own and the pins of `other`, as by a mistake.
    pub fn with_pins_of(other: &Self) -> Result<Self> {
        let mut directories = Self::new()?;
        (directories.bpffs, directories.borrowed) = (other.bpffs.clone(), true);
        Ok(directories)
    }

    /// With a state directory in memory, of this size.
    pub fn with_state_in_memory(bytes: u64) -> Result<Self> {
        let mut directories = Self::new()?;
        directories.state = Some(Tmpfs::mount(&directories.state(), bytes)?);
        Ok(directories)
    }

    /// See [`Directories::with_state_in_memory`].
    ///
    /// # Panics
    /// If it was made otherwise.
    pub fn state_in_memory(&self) -> &Tmpfs {
        self.state.as_ref().expect("its state is in memory")
    }

    pub fn socket(&self) -> PathBuf {
        self.temporary.path().join("sock")
    }

    pub fn state(&self) -> PathBuf {
        self.temporary.path().join("state")
    }

    /// Where the daemon pins. It exists only once the daemon has made it.
    pub fn bpffs(&self) -> &Path {
        &self.bpffs
    }

    /// A directory for whatever else a test writes.
    pub fn temporary(&self) -> &Path {
        self.temporary.path()
    }
}

/// Removes what killed test processes left in a directory.
fn remove_stale(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_left_behind) {
            // Another test process may be removing the same ones.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether this is the name of something of a test that was killed.
fn is_left_behind(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(is_stale)
}

impl Drop for Directories {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|at| Path::new(at) == self.bpffs)) {
            let _ = Command::new("umount").arg(&self.bpffs).status();
        }
        if self.bpffs.exists()
            && let Err(error) = fs::remove_dir_all(&self.bpffs)
        {
            eprintln!("remove {}: {error}", self.bpffs.display());
        }
    }
}
