//! The state directory:
//!
//! | file | content |
//! |---|---|
//! | `probes/NAME.json` | a probe's configuration and the deployment that runs it |
//! | `expired/NAME.json` | the same of a probe whose lease has ended, as long as its windows are kept |
//! | `revisions/NAME/N.json` | its configurations so far |
//! | `objects/DIGEST.o` | compiled sources, by their SHA-256 |
//! | `windows/NAME/SEQ.window` | retained windows; see the crate `windows` |
//! | `windows/.log-N` | the log of all windows, which makes them durable |
//! | `lock` | keeps a second daemon out |
//!
//! Files are replaced whole, so a crash leaves the old or the new one. The files in `probes/` say what has to run. The
//! files of probes and revisions contain the version of their format ([`format`]). A file that can't be read is left as
//! it is, and its probe stays listed; a PUT that replaces such a file keeps it as `probes/NAME.unreadable`.

pub mod files;
pub mod format;
pub mod pending;
pub mod record;
pub mod spool;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use twinprobe_client::Revision;
use twinprobe_kernel::private;

use crate::store::files::{StoreError, TEMPORARY, failed, hex, sync};
use crate::store::format::Unread;
use crate::store::pending::Pending;
use crate::store::record::{StoredProbe, StoredRevision};
use crate::store::spool::Spool;

/// The number of configurations of a probe that are kept.
const REVISIONS: u64 = 32;

/// The state on disk.
#[derive(Debug)]
pub struct Store {
    probes: PathBuf,
    expired: PathBuf,
    revisions: PathBuf,
    objects: PathBuf,
    state_dir: PathBuf,
    /// The lock files, locked while the daemon lives.
    _lock: Vec<File>,
}

/// A probe's name, and what is stored or why it can't be read.
pub type Stored = (String, Result<StoredProbe, Unread>);

impl Store {
    /// Makes the directories and takes the lock. Fails if another daemon holds the lock.
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
        let [probes, expired, revisions, objects] =
            ["probes", "expired", "revisions", "objects"].map(|directory| state_dir.join(directory));
        for directory in [state_dir, &probes, &revisions, &objects] {
            private::directory(directory).map_err(failed("preparing", directory))?;
        }
        for directory in [&expired, &state_dir.join("windows")] {
            if directory.exists() {
                private::directory(directory).map_err(failed("preparing", directory))?;
            }
        }
        let lock_path = state_dir.join("lock");
        let lock = files::lock(&lock_path, &probes).map_err(failed("locking", &lock_path))?;
        let lock = lock.ok_or_else(|| StoreError::InUse(state_dir.to_owned()))?;
        clean(&probes);
        clean(&objects);
        for history in fs::read_dir(&revisions).into_iter().flatten().flatten() {
            clean(&history.path());
        }
        let state_dir = state_dir.to_owned();
        Ok(Self { probes, expired, revisions, objects, state_dir, _lock: lock })
    }

    /// Makes a file for what is too large for the memory, which leaves `keep_free` bytes of the disk free.
    pub fn spool(&self, keep_free: u64) -> io::Result<Spool> {
        Spool::create(&self.state_dir, keep_free)
    }

    /// Reads every stored probe, sorted by name.
    pub fn load(&self) -> Result<Vec<Stored>, StoreError> {
        read_all(&self.probes)
    }

    /// Reads the records of probes whose leases have ended, sorted by name.
    pub fn load_expired(&self) -> Result<Vec<Stored>, StoreError> {
        if self.expired.exists() { read_all(&self.expired) } else { Ok(Vec::new()) }
    }

    /// Keeps the record of a probe whose lease has ended beyond [`Self::remove`].
    pub fn keep_expired(&self, name: &str) -> Result<(), StoreError> {
        private::directory(&self.expired).map_err(failed("preparing", &self.expired))?;
        let kept = self.expired.join(format!("{name}.json"));
        let _ = fs::remove_file(&kept);
        fs::hard_link(self.path(name), &kept).map_err(failed("writing", &kept))?;
        for directory in [self.expired.parent(), Some(&*self.expired)].into_iter().flatten() {
            sync(directory).map_err(failed("syncing", directory))?;
        }
        Ok(())
    }

    /// Removes the record of a probe whose lease has ended.
    pub fn forget_expired(&self, name: &str) {
        let path = self.expired.join(format!("{name}.json"));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "a record that is not needed any more stays");
            }
            _ => {}
        }
    }

    /// Writes a probe's state to disk, and its revision with the sender's `message`. The state counts only after
    /// [`Pending::commit`]. Its objects must have been kept.
    pub fn prepare(
        &self,
        name: &str,
        probe: &StoredProbe,
        message: Option<String>,
    ) -> Result<Pending<'_>, StoreError> {
        let history = self.revisions.join(name);
        fs::create_dir_all(&history).map_err(failed("creating", &history))?;
        let path = history.join(format!("{}.json", probe.revision));
        // A probe that is deployed anew has the file already, with the time when the revision was first deployed.
        let known = fs::read(&path).ok().and_then(|bytes| format::parse_revision(&bytes));
        let is_it = |known: StoredRevision| {
            let says_so = message.is_none() || known.message == message;
            known.config == probe.config && known.pushed_by == probe.pushed_by && says_so
        };
        if !known.is_some_and(is_it) {
            let (created, config) = (jiff::Timestamp::now().to_string(), probe.config.clone());
            let pushed_by = probe.pushed_by.clone();
            let revision = StoredRevision { created, pushed_by, message, config };
            let kept = format::file(&revision).and_then(|content| write(&history, &content));
            kept.and_then(|file| Ok(file.persist(&path)?)).map_err(failed("writing", &path))?;
        }
        let _ = fs::remove_file(history.join(format!("{}.json", probe.revision.saturating_sub(REVISIONS))));
        let record = self.path(name);
        let temporary = format::file(probe).and_then(|content| write(&self.probes, &content));
        let temporary = temporary.map_err(failed("writing", &record))?;
        // After a power failure the files that a committed state names must be there, also those that an earlier
        // daemon wrote. Once all have their names, the first sync takes most of the others' changes to the disk.
        let objects = probe.running.iter().flat_map(|running| running.objects.values());
        let objects = objects.map(|digest| self.object_path(digest));
        let directories = [&self.objects, &self.revisions, &history].map(PathBuf::clone);
        for path in objects.chain([path]).chain(directories).chain([temporary.to_path_buf()]) {
            sync(&path).map_err(failed("syncing", &path))?;
        }
        Ok(Pending { probes: &self.probes, temporary, path: record })
    }

    /// Removes a probe's file, then its revisions and sums.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        pending::remove(&self.probes, &self.path(name))?;
        let path = self.revisions.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "revisions of a removed probe stay on disk");
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the kept configurations of a probe, oldest first. `current` is the number of its present revision.
    pub fn revisions(&self, name: &str, current: u64) -> Result<Vec<Revision>, StoreError> {
        let history = self.revisions.join(name);
        let mut found = Vec::new();
        for revision in current.saturating_sub(REVISIONS - 1)..=current {
            let path = history.join(format!("{revision}.json"));
            match fs::read(&path) {
                Ok(bytes) => match format::parse_revision(&bytes) {
                    Some(StoredRevision { created, pushed_by, message, config }) => {
                        let current = revision == current;
                        found.push(Revision { revision, created, pushed_by, message, current, config });
                    }
                    None => {
                        tracing::warn!(path = %path.display(), "a revision can't be read and is left out");
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("reading", &path)(error)),
            }
        }
        Ok(found)
    }

    /// Stores a compiled source, in place of a damaged file if there is one. Returns its digest, the name for
    /// [`Self::object`]. The file outlives a power failure only after [`Self::prepare`]; until then a power failure can
    /// leave it damaged, under its name.
    pub fn keep_object(&self, elf: &[u8]) -> Result<String, StoreError> {
        let digest = digest(elf);
        let path = self.object_path(&digest);
        if !fs::read(&path).is_ok_and(|kept| kept == elf) {
            let kept = write(&self.objects, elf).and_then(|file| Ok(file.persist(&path)?));
            kept.map_err(failed("writing", &path))?;
        }
        Ok(digest)
    }

    /// Returns an object that was kept; `None` if it is missing or damaged.
    pub fn object(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.object_path(name);
        match fs::read(&path) {
            Ok(elf) => Ok((digest(&elf) == name).then_some(elf)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("reading", &path)(error)),
        }
    }

    /// The newest revision of a probe that has a file; 0 if there is none.
    pub fn last_revision(&self, name: &str) -> u64 {
        let entries = fs::read_dir(self.revisions.join(name)).into_iter().flatten().flatten();
        let number = |name: &str| name.strip_suffix(".json")?.parse().ok();
        entries.filter_map(|entry| entry.file_name().to_str().and_then(number)).max().unwrap_or(0)
    }

    /// Removes the objects that no stored probe uses. Removes none if a stored probe can't be read, because the objects
    /// of that probe are not known. Must be called while nothing else changes.
    pub fn sweep_objects(&self) {
        let Ok(stored) = self.load() else { return };
        let mut used = BTreeSet::new();
        for (_, stored) in stored {
            let Ok(stored) = stored else { return };
            used.extend(stored.running.into_iter().flat_map(|running| running.objects.into_values()));
        }
        let is_used = |name: &str| name.strip_suffix(".o").is_some_and(|name| used.contains(name));
        remove_but(&self.objects, is_used);
    }

    /// Removes the revisions and sums of probes that have no file. A file that can't be read counts as a file.
    pub fn forget_others(&self, probes: &BTreeSet<String>) {
        remove_but(&self.revisions, |name| probes.contains(name));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.probes.join(format!("{name}.json"))
    }

    fn object_path(&self, digest: &str) -> PathBuf {
        self.objects.join(format!("{digest}.o"))
    }
}

/// Reads the records of a directory, sorted by name.
fn read_all(directory: &Path) -> Result<Vec<Stored>, StoreError> {
    let mut out = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed("reading", directory))? {
        let path = entry.map_err(failed("reading", directory))?.path();
        let Some(name) =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"))
        else {
            continue;
        };
        let read =
            fs::read(&path).map_err(|error| Unread(format!("{} can't be read: {error}", path.display())));
        out.push((name.to_owned(), read.and_then(|bytes| format::parse(&bytes))));
    }
    out.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(out)
}

fn remove_but(directory: &Path, is_used: impl Fn(&str) -> bool) {
    let remove = || -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(&is_used) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    if let Err(error) = remove()
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %directory.display(), %error, "unused files could not be removed");
    }
}

/// Removes the temporary files of a daemon that was killed while writing.
fn clean(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .to_str()
            .is_some_and(|name| TEMPORARY.iter().any(|prefix| name.starts_with(prefix)))
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes a temporary file, which [`sync`] takes to the disk.
fn write(directory: &Path, content: &[u8]) -> io::Result<tempfile::TempPath> {
    let mut file = tempfile::Builder::new().prefix(TEMPORARY[0]).tempfile_in(directory)?;
    file.write_all(content)?;
    Ok(file.into_temp_path())
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
