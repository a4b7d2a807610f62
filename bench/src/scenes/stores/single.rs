//! A file for each window, each with its own syncs: written under another name, synced, renamed,
//! and the directory synced.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use super::store::{Store, Window};

pub struct Files {
    root: PathBuf,
    syncs: AtomicU64,
}

impl Files {
    pub fn open(root: &Path) -> Result<Box<dyn Store>> {
        Ok(Box::new(Self {
            root: root.to_owned(),
            syncs: AtomicU64::new(0),
        }))
    }
}

/// Writes the file of a window; it may not be on disk yet.
pub fn write(root: &Path, window: &Window<'_>) -> Result<(PathBuf, File)> {
    let directory = root.join(window.writer.to_string());
    let new = directory.join(".new");
    let create = || {
        File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)
    };
    let mut file = create().or_else(|_| fs::create_dir_all(&directory).and_then(|()| create()))?;
    file.write_all(window.content)?;
    Ok((directory, file))
}

/// Gives the file of a window its final name.
pub fn publish(directory: &Path, window: &Window<'_>) -> Result<()> {
    Ok(fs::rename(
        directory.join(".new"),
        directory.join(window.seq.to_string()),
    )?)
}

/// Removes the file of the window that this one supersedes.
pub fn supersede(directory: &Path, window: &Window<'_>) -> Result<()> {
    if let Some(seq) = window.superseded() {
        fs::remove_file(directory.join(seq.to_string()))?;
    }
    Ok(())
}

impl Store for Files {
    fn put(&self, windows: &[Window<'_>]) -> Result<()> {
        for window in windows {
            let (directory, file) = write(&self.root, window)?;
            file.sync_all()?;
            publish(&directory, window)?;
            File::open(&directory)?.sync_all()?;
            self.syncs.fetch_add(2, Ordering::Relaxed);
            supersede(&directory, window)?;
        }
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}
