//! Reserved room for changes that make room: even on a full disk, the store must record an
//! acknowledgement.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};

const FILE: &str = "store.reserve";
/// The size of the reserve in bytes; on a small file system, the reserve is a part of this.
const SIZE: u64 = 512 * 1024;
const PART: u64 = 16;
/// The pause before the next attempt to make the file.
const PAUSE: Duration = Duration::from_secs(1);

/// A file that occupies room until the store needs it.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    is_there: bool,
    next: Option<Instant>,
}

impl Reserve {
    pub fn new(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
            is_there: false,
            next: None,
        }
    }

    /// Creates the file, unless it exists or there is no room for it.
    pub fn keep(&mut self) {
        if self.is_there || self.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        self.is_there = self.make().is_ok();
        if !self.is_there {
            let _ = fs::remove_file(&self.path);
            self.next = Some(Instant::now() + PAUSE);
        }
    }

    fn make(&self) -> io::Result<()> {
        let parent = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let system = rustix::fs::statvfs(parent)?;
        let size = SIZE.min(system.f_blocks.saturating_mul(system.f_frsize) / PART);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        if file.metadata()?.len() < size {
            fallocate(&file, FallocateFlags::empty(), 0, size)?;
        }
        Ok(())
    }

    /// Removes the file. Returns false if the file did not exist.
    pub fn give_up(&mut self) -> bool {
        self.is_there = false;
        self.next = Some(Instant::now() + PAUSE);
        fs::remove_file(&self.path).is_ok()
    }
}
