//! The commit that decides which configuration of a probe is the stored one.

use std::path::{Path, PathBuf};
use std::{fs, io};

use twinprobe_kernel::crash;

use crate::store::files::{StoreError, TEMPORARY, failed, sync};
use crate::store::format;

/// A probe's state that is on disk but not yet under its name. Dropping the value discards the state.
#[derive(Debug)]
pub struct Pending<'a> {
    /// The directory of the records.
    pub probes: &'a Path,
    pub temporary: tempfile::TempPath,
    pub path: PathBuf,
}

impl Pending<'_> {
    /// Makes the state the stored one. After an error the file is what it was before, and the kernel is brought back to
    /// that file as well.
    pub fn commit(self) -> Result<(), StoreError> {
        let Self { probes, temporary, path } = self;
        let failed = || failed("writing", &path);
        let old = Old::keep(&path).map_err(failed())?;
        temporary.persist(&path).map_err(|error| failed()(error.error))?;
        match sync_record(probes) {
            Ok(()) => {
                old.forget();
                Ok(())
            }
            Err(error) => old.settle(error).map_err(failed()),
        }
    }
}

/// Removes the stored state of a probe. After an error the file is what it was before, as with [`Pending::commit`].
pub fn remove(probes: &Path, path: &Path) -> Result<(), StoreError> {
    let old = Old::keep(path).map_err(failed("removing", path))?;
    let removed = match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_record(probes).or_else(|error| old.settle(error)),
    };
    if removed.is_ok() {
        let _ = fs::remove_file(&old.link);
        let _ = fs::remove_file(path.with_extension(UNREADABLE));
    }
    removed.map_err(failed("removing", path))
}

fn sync_record(probes: &Path) -> io::Result<()> {
    crash::fault("syncing")?;
    sync(probes)
}

const UNREADABLE: &str = "unreadable";

/// The file that is to be replaced, kept until its successor is on disk to stay.
struct Old {
    link: PathBuf,
    path: PathBuf,
    was_there: bool,
}

impl Old {
    fn keep(path: &Path) -> io::Result<Self> {
        let mut name = std::ffi::OsString::from(TEMPORARY[1]);
        name.push(path.file_name().unwrap_or_default());
        let link = path.with_file_name(name);
        let _ = fs::remove_file(&link);
        let was_there = match fs::hard_link(path, &link) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            linked => linked.map(|()| true)?,
        };
        Ok(Self { link, path: path.to_owned(), was_there })
    }

    /// Removes the replaced file. An unreadable file is kept for a daemon that can read it, or for the operator.
    fn forget(self) {
        let Self { link, path, was_there } = self;
        let is_readable = || fs::read(&link).is_ok_and(|bytes| format::parse(&bytes).is_ok());
        let gone = if was_there && !is_readable() {
            let aside = path.with_extension(UNREADABLE);
            tracing::warn!(path = %aside.display(), "an unreadable configuration was replaced and kept");
            fs::rename(&link, aside)
        } else {
            fs::remove_file(&link)
        };
        if let Err(error) = gone
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %link.display(), %error, "a replaced file could not be removed");
        }
    }

    /// Takes back a change that may not outlive a power failure. If that fails as well, the change holds, so that the
    /// file and the kernel say the same.
    fn settle(&self, error: io::Error) -> io::Result<()> {
        let back =
            if self.was_there { fs::rename(&self.link, &self.path) } else { fs::remove_file(&self.path) };
        match back {
            Ok(()) => Err(error),
            Err(back) if !self.was_there && back.kind() == io::ErrorKind::NotFound => Err(error),
            Err(back) => {
                let path = self.path.display();
                tracing::error!(%path, %error, %back, "a change is made, but a power failure may undo it");
                Ok(())
            }
        }
    }
}
