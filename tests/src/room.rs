//! The room of a file system, which tests fill.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{FallocateFlags, fallocate};

/// The file that takes the room.
const FILLER: &str = "filler";
/// The size of the first steps in which the room is taken.
const STEP: u64 = 64 << 20;

/// The room of the file system that is mounted at a directory.
#[derive(Debug)]
pub struct Room(PathBuf);

impl Room {
    pub fn of(at: &Path) -> Self {
        Self(at.join(FILLER))
    }

    /// Fills the file system to the last byte.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::options().create(true).append(true).open(&self.0)?;
        // Reserving room is faster than writing, and leaves none as well.
        let mut size = STEP;
        while size >= 4096 {
            let end = file.metadata()?.len();
            if fallocate(&file, FallocateFlags::empty(), end, size).is_err() {
                size /= 2;
            }
        }
        let mut size = 1 << 20;
        while size > 0 {
            match file.write(&vec![0; size]) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => size /= 2,
                Err(error) => return Err(error).context("fill a file system"),
            }
        }
        Ok(())
    }

    /// Fills the file system but for this many bytes.
    pub fn fill_but(&self, bytes: u64) -> Result<()> {
        self.fill()?;
        let filler = File::options().write(true).open(&self.0)?;
        let size = filler.metadata()?.len();
        filler
            .set_len(size.saturating_sub(bytes))
            .context("make some room")
    }

    /// Removes the file of [`Room::fill`].
    pub fn free(&self) -> Result<()> {
        fs::remove_file(&self.0).context("make room")
    }
}
