//! Small files that have gone and are written again: the creation and the removal of a file take the file system longer
//! than everything else that a small window needs. A spare file is named as an unfinished one, so that a start removes
//! it.
//!
//! A file is written again only if nobody else has it open and it has no other name: whoever has opened a window reads
//! that window to its end. The log has the removal on disk before, so that a loss of power brings no name back that
//! leads to another window's content.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::OFlags;
use tempfile::{NamedTempFile, TempPath};

use crate::file::directory::TEMPORARY;
use crate::log::log::{Log, Ticket};

/// Tells whether a file is open nowhere but here. False if that is not known.
pub type IsUnshared = fn(&File) -> bool;

/// The largest number of files that wait for a window: while one is written, the removals of two get into the log.
const MOST: usize = 3;
/// The largest size of a spare file, in bytes.
const LARGEST: u64 = 16 * 1024;

/// The spare files of one directory.
#[derive(Debug)]
pub struct Spares {
    is_unshared: IsUnshared,
    files: Mutex<Files>,
}

/// The paths of the spare files.
#[derive(Debug, Default)]
pub struct Files {
    /// Files of windows, oldest first, with the records of their removal.
    windows: VecDeque<(PathBuf, Ticket)>,
    /// The `state.json` before the present one.
    state: Option<PathBuf>,
}

impl Spares {
    pub fn new(is_unshared: IsUnshared) -> Self {
        Self { is_unshared, files: Mutex::default() }
    }

    /// Keeps files from becoming spare, so that somebody can open one by the name of a window.
    pub fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }

    /// Takes a window's file away under the name of a spare file, which is returned. `None` if the file has to be
    /// removed.
    pub fn set_aside(&self, path: &Path) -> Option<PathBuf> {
        /// The number of the next spare file of all directories.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let files = self.files.lock();
        // A lease is tried when the file is to be written: somebody may open the file until then.
        if files.windows.len() >= MOST || !is_plain(&fs::symlink_metadata(path).ok()?) {
            return None;
        }
        let name = format!("{TEMPORARY}spare{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let spare = path.with_file_name(name);
        fs::rename(path, &spare).ok()?;
        Some(spare)
    }

    /// Keeps a file that was set aside until the record of its removal is on disk, and a window needs it.
    pub fn keep(&self, spare: PathBuf, removal: Ticket) {
        self.files.lock().windows.push_back((spare, removal));
    }

    /// Keeps the `state.json` before the present one.
    pub fn keep_state(&self, spare: PathBuf) {
        let before = self.files.lock().state.replace(spare);
        before.iter().for_each(|path| remove(path));
    }

    /// Returns a file for a window, with the content of another one, and the length of that.
    pub fn for_window(&self, log: &Log) -> Option<(NamedTempFile, u64)> {
        let mut files = self.files.lock();
        let (path, _) = files.windows.pop_front_if(|(_, removal)| log.is_durable(*removal))?;
        drop(files);
        self.open(path)
    }

    /// Returns a file for a state, with the content of another one, and the length of that.
    pub fn for_state(&self) -> Option<(NamedTempFile, u64)> {
        let path = self.files.lock().state.take()?;
        self.open(path)
    }

    /// Removes all spare files. Returns false if there was none.
    pub fn give_up(&self) -> bool {
        let Files { windows, state } = std::mem::take(&mut *self.files.lock());
        let gone: Vec<PathBuf> = windows.into_iter().map(|(path, _)| path).chain(state).collect();
        gone.iter().for_each(|path| remove(path));
        !gone.is_empty()
    }

    /// Opens a spare file, which is removed if it can't be written.
    fn open(&self, path: PathBuf) -> Option<(NamedTempFile, u64)> {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        let path = TempPath::try_from_path(path).ok()?;
        let file = file.ok()?;
        let known = file.metadata().ok()?;
        let can_be_written = is_plain(&known) && (self.is_unshared)(&file);
        can_be_written.then(|| (NamedTempFile::from_parts(file, path), known.len()))
    }
}

/// Tells whether a file is small, and one that this daemon has made and that has no other name.
fn is_plain(file: &fs::Metadata) -> bool {
    file.is_file() && file.nlink() == 1 && file.len() <= LARGEST && file.mode() & 0o777 == 0o600
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Removes a spare file that is not needed any more.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a spare file could not be removed");
    }
}
