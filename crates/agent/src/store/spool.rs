//! Files for uploads and rows that are too large for the memory. They have no name, so that the
//! kernel removes them when their last descriptor is closed.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfs;

/// The room that must stay free is at most 1 / KEEP_FREE_PART of the disk, as for windows.
const KEEP_FREE_PART: u64 = 20;

/// The size of a file system and its free room, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    pub free: u64,
    /// The room that must stay free.
    pub keep_free: u64,
}

impl DiskRoom {
    fn of(system: &StatVfs, keep_free: u64) -> Self {
        let all = system.f_blocks.saturating_mul(system.f_frsize);
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        Self {
            free,
            keep_free: keep_free.min(all / KEEP_FREE_PART),
        }
    }
}

/// Returns the room of the file system of a directory.
pub fn room(directory: &Path, keep_free: u64) -> io::Result<DiskRoom> {
    Ok(DiskRoom::of(&rustix::fs::statvfs(directory)?, keep_free))
}

/// The directory for spooled files.
#[derive(Clone, Debug)]
pub struct Spools {
    pub directory: PathBuf,
    /// The number of bytes that spooled files leave free on the disk.
    pub keep_free: u64,
}

impl Spools {
    pub fn create(&self) -> io::Result<Spool> {
        Spool::create(&self.directory, self.keep_free)
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct Spool {
    file: File,
    keep_free: u64,
}

impl Spool {
    /// Makes an empty file in `directory`, which leaves `keep_free` bytes of the disk free.
    pub fn create(directory: &Path, keep_free: u64) -> io::Result<Self> {
        Ok(Self {
            file: tempfile::tempfile_in(directory)?,
            keep_free,
        })
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let DiskRoom { free, keep_free } =
            DiskRoom::of(&rustix::fs::fstatvfs(&self.file)?, self.keep_free);
        if free < keep_free.saturating_add(bytes.len() as u64) {
            let reason =
                format!("No space left on device: {free} bytes are free, {keep_free} stay free");
            return Err(io::Error::new(io::ErrorKind::StorageFull, reason));
        }
        self.file.write_all(bytes)
    }

    /// Returns a second handle of the file, which can be read at any place during the writing.
    pub fn reader(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Returns the finished file, for reading from its beginning.
    pub fn finish(mut self) -> io::Result<File> {
        self.file.rewind()?;
        Ok(self.file)
    }
}
