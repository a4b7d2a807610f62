//! Directories of a daemon that outlive its process.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use tempfile::TempDir;

use crate::disk::{Disk, FileSystem};
use crate::netns::{is_stale, unique_prefix};
use crate::tmpfs::{self, Tmpfs};

const BPFFS: &str = "/sys/fs/bpf";
/// The prefix of the names of tests' directories; [`unique_prefix`] follows.
const PREFIX: &str = "twinprobe-test-";

/// Mounts the file system of the pins, as a daemon does where it is missing. A daemon without that
/// right cannot, and a daemon in a mount namespace of its own would mount it there: the mount would
/// end with that namespace.
pub fn mount_bpffs() -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    if mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(BPFFS))
    {
        return Ok(());
    }
    crate::netns::run("mount", &["-t", "bpf", "bpffs", BPFFS])
}

/// The directories that outlive one process of the daemon: socket, state, pins.
#[derive(Debug)]
pub struct Directories {
    /// The state directory's file system, declared first so that it is unmounted before its
    /// directory is removed.
    state: Option<Tmpfs>,
    /// The disk of this file system, if it is one that can lose unsynced writes.
    disk: Option<Disk>,
    temporary: TempDir,
    bpffs: PathBuf,
    /// True if the pins belong to another value, which removes them.
    borrowed: bool,
}

impl Directories {
    /// Makes new directories, and removes those that killed test processes have left.
    pub fn new() -> Result<Self> {
        let name = format!("{PREFIX}{}", unique_prefix());
        tmpfs::unmount_stale(is_left_behind);
        remove_stale(Path::new(BPFFS));
        remove_stale(&env::temp_dir());
        let temporary = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .tempdir()?;
        Ok(Self {
            state: None,
            disk: None,
            temporary,
            bpffs: Path::new(BPFFS).join(name),
            borrowed: false,
        })
    }

    /// Makes directories with a state of their own and the pins of `other`, as an operator might by
    /// mistake.
    pub fn with_pins_of(other: &Self) -> Result<Self> {
        let mut directories = Self::new()?;
        (directories.bpffs, directories.borrowed) = (other.bpffs.clone(), true);
        Ok(directories)
    }

    /// Makes directories whose state is in memory, with room for `bytes`.
    pub fn with_state_in_memory(bytes: u64) -> Result<Self> {
        let mut directories = Self::new()?;
        directories.state = Some(Tmpfs::mount(&directories.state(), bytes)?);
        Ok(directories)
    }

    /// Returns the file system of [`Directories::with_state_in_memory`].
    ///
    /// # Panics
    /// Panics if the state is not in memory.
    pub fn state_in_memory(&self) -> &Tmpfs {
        self.state.as_ref().expect("its state is in memory")
    }

    /// Makes directories whose state is on a disk that forgets.
    pub fn with_state_on_disk(kind: FileSystem) -> Result<Self> {
        let mut directories = Self::new()?;
        let below = directories.temporary().join("disk");
        directories.disk = Some(Disk::mount(kind, &directories.state(), &below)?);
        Ok(directories)
    }

    /// Returns the disk of [`Directories::with_state_on_disk`].
    ///
    /// # Panics
    /// Panics if the state is not on a disk that forgets.
    pub fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("its state is on a disk")
    }

    /// Returns the disk of [`Directories::with_state_on_disk`], if the state is on one.
    pub const fn disk_if_any(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    pub fn socket(&self) -> PathBuf {
        self.temporary.path().join("sock")
    }

    pub fn state(&self) -> PathBuf {
        self.temporary.path().join("state")
    }

    /// Returns the directory of the daemon's pins. It exists once the daemon has made it.
    pub fn bpffs(&self) -> &Path {
        &self.bpffs
    }

    /// Returns a directory for other files of a test.
    pub fn temporary(&self) -> &Path {
        self.temporary.path()
    }
}

/// Removes the directories that killed test processes left in `directory`.
fn remove_stale(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_left_behind) {
            // Another test process may be removing the same directory.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Turns the switch of the machine back if a daemon that has died has left it on, like the next
/// daemon.
fn turn_back() -> std::io::Result<()> {
    let note = File::options()
        .read(true)
        .write(true)
        .open("/run/twinprobe/rcu_expedited")?;
    if note.metadata()?.len() > 0 && note.try_lock().is_ok() {
        fs::write("/sys/kernel/rcu_expedited", "0")?;
        note.set_len(0)?;
    }
    Ok(())
}

/// Tells whether a name is that of a directory of a killed test process.
fn is_left_behind(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(is_stale)
}

impl Drop for Directories {
    fn drop(&mut self) {
        // The last daemon was killed in the midst of a change, and perhaps no other comes that
        // would turn the switch back.
        let _ = turn_back();
        if self.borrowed {
            return;
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if mounts.lines().any(|line| {
            line.split(' ')
                .nth(1)
                .is_some_and(|at| Path::new(at) == self.bpffs)
        }) {
            let _ = Command::new("umount").arg(&self.bpffs).status();
        }
        if self.bpffs.exists()
            && let Err(error) = fs::remove_dir_all(&self.bpffs)
        {
            eprintln!("remove {}: {error}", self.bpffs.display());
        }
    }
}
