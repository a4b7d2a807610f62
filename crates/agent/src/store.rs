//! The state directory:
//!
//! | file | content |
//! |---|---|
//! | `store.sqlite` | everything but large bodies: probes, revisions, windows, sums; see the crate `store` |
//! | `bodies/ID` | large bodies of windows and of sums; see the crate `windows` |
//! | `objects/DIGEST.o` | compiled sources, by their SHA-256 |
//! | `pods.json` | the pods of the node |
//! | `lock` | keeps a second daemon out |
//!
//! The table `probes` names the probes that must run. A record contains the version of its format
//! ([`format`]). A record that can't be read stays unchanged, and its probe stays listed; a PUT
//! that replaces such a record moves it to the table `unreadable`.

pub mod error;
pub mod format;
pub mod history;
pub mod pending;
pub mod pods;
pub mod record;
pub mod room;
pub mod rule_revisions;
pub mod rules;
pub mod spool;
pub mod takeover;
pub mod templates;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use twinprobe_api::{HistoryEntry, Revision};
use twinprobe_faults::crash;
use twinprobe_state_files::lasting::{self, TEMPORARY};
use twinprobe_state_files::private;
use twinprobe_store::{Change, Connection, Database, Durable, OptionalExtension as _, params};

use crate::store::error::{StoreError, failed, hex};
use crate::store::format::Unread;
use crate::store::record::{StoredProbe, StoredRevision};
use crate::store::spool::Spools;

/// The number of configurations of a probe that are kept.
const REVISIONS: u64 = 32;

/// The state on disk.
#[derive(Debug)]
pub struct Store {
    pub database: Arc<Database>,
    objects: PathBuf,
    /// The objects that are known to survive a power failure.
    lasting_objects: Mutex<BTreeSet<String>>,
    /// The objects that each rule may deploy. They stay although no probe uses them.
    objects_of_rules: Mutex<BTreeMap<String, BTreeSet<String>>>,
    state_dir: PathBuf,
    /// The time for which the history of changes is kept.
    keep_history: Duration,
    /// The lock files, which are locked while the daemon lives.
    _lock: Vec<File>,
}

/// A probe's name, and its record or the reason why the record can't be read.
pub type StoredRecord = (String, Result<StoredProbe, Unread>);

/// A table whose records are found by the names of probes.
#[derive(Clone, Copy)]
enum RecordTable {
    Probes,
    Expired,
}

impl RecordTable {
    const fn all(self) -> &'static str {
        match self {
            Self::Probes => "SELECT name, record FROM probes ORDER BY name",
            Self::Expired => "SELECT name, record FROM expired ORDER BY name",
        }
    }
}

impl Store {
    /// Makes the directories, takes the lock, and opens the store. Fails if another daemon holds
    /// the lock.
    pub fn open(state_dir: &Path, keep_history: Duration) -> Result<Self, StoreError> {
        let objects = state_dir.join("objects");
        for directory in [state_dir, &objects] {
            private::directory(directory).map_err(failed("preparing", directory))?;
        }
        let bodies = state_dir.join(twinprobe_windows::BODIES);
        if bodies.exists() {
            private::directory(&bodies).map_err(failed("preparing", &bodies))?;
        }
        let lock_path = state_dir.join("lock");
        let lock = lasting::lock(&lock_path, &objects).map_err(failed("locking", &lock_path))?;
        let lock = lock.ok_or_else(|| StoreError::InUse(state_dir.to_owned()))?;
        clean(&objects);
        let database = Database::open(state_dir)?;
        takeover::take_over(state_dir, &database)?;
        let (lasting_objects, objects_of_rules) = (Mutex::default(), Mutex::default());
        let state_dir = state_dir.to_owned();
        Ok(Self {
            database,
            objects,
            lasting_objects,
            objects_of_rules,
            state_dir,
            keep_history,
            _lock: lock,
        })
    }

    /// Returns the place for files with data that is too large for the memory. These files leave
    /// `keep_free` bytes of the disk free.
    pub fn spools(&self, keep_free: u64) -> Spools {
        Spools {
            directory: self.state_dir.clone(),
            keep_free,
        }
    }

    /// Reads every stored probe, sorted by name.
    pub fn load(&self) -> Result<Vec<StoredRecord>, StoreError> {
        self.load_all(RecordTable::Probes)
    }

    /// Reads the records of probes whose leases have ended, sorted by name.
    pub fn load_expired(&self) -> Result<Vec<StoredRecord>, StoreError> {
        self.load_all(RecordTable::Expired)
    }

    fn load_all(&self, table: RecordTable) -> Result<Vec<StoredRecord>, StoreError> {
        let records = self.read("the probes", |connection| {
            let mut statement = connection.prepare(table.all())?;
            let rows = statement.query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
            })?;
            rows.collect::<twinprobe_store::Result<Vec<_>>>()
        })?;
        Ok(records
            .into_iter()
            .map(|(name, record)| (name, format::parse(&record)))
            .collect())
    }

    fn read<T>(
        &self,
        what: &str,
        read: impl FnOnce(&Connection) -> twinprobe_store::Result<T>,
    ) -> Result<T, StoreError> {
        self.database.read(read).map_err(|source| StoreError::Read {
            what: what.to_owned(),
            source,
        })
    }

    /// Tells whether an object is already stored.
    fn has_object(&self, elf: &[u8]) -> bool {
        self.object_path(&digest(elf)).exists()
    }

    fn record(&self, name: &str, revision: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT record FROM revisions WHERE name = ?1 AND revision = ?2";
        self.read("a revision", |connection| {
            connection
                .prepare_cached(sql)?
                .query_row(params![name, revision], |row| row.get(0))
                .optional()
        })
    }

    /// Removes a probe's record with its revisions, makes the change `windows` of its windows, and
    /// adds `entry` to the history. After an error nothing has changed.
    pub fn remove(&self, entry: HistoryEntry, windows: Change) -> Result<(), StoreError> {
        self.forget(entry, windows, false)
    }

    /// Removes a probe like [`Self::remove`], at the end of its lease, and keeps the record for the
    /// probe's windows.
    pub fn expire(&self, entry: HistoryEntry) -> Result<(), StoreError> {
        self.forget(entry, Box::new(|_| Ok(())), true)
    }

    fn forget(
        &self,
        entry: HistoryEntry,
        windows: Change,
        is_kept: bool,
    ) -> Result<(), StoreError> {
        let (name, oldest) = (entry.probe.clone(), self.oldest_change());
        let of = name.clone();
        self.commit(
            &format!("the removal of probe {name}"),
            true,
            Box::new(move |connection| {
                if is_kept {
                    connection
                        .prepare_cached(
                            "INSERT OR REPLACE INTO expired SELECT name, record FROM probes WHERE name = ?1",
                        )?
                        .execute([&of])?;
                }
                for sql in [
                    "DELETE FROM probes WHERE name = ?1",
                    "DELETE FROM revisions WHERE name = ?1",
                    "DELETE FROM unreadable WHERE name = ?1",
                ] {
                    connection.prepare_cached(sql)?.execute([&of])?;
                }
                history::add(connection, &entry, oldest)?;
                windows(connection)
            }),
        )
    }

    /// Removes the record of a probe whose lease has ended, and applies the change `windows` to its
    /// windows.
    pub fn forget_expired(&self, name: &str, windows: Change) -> Result<(), StoreError> {
        let of = name.to_owned();
        self.commit(
            &format!("the removal of windows of probe {name}"),
            true,
            Box::new(move |connection| {
                connection
                    .prepare_cached("DELETE FROM expired WHERE name = ?1")?
                    .execute([&of])?;
                windows(connection)
            }),
        )
    }

    fn commit(&self, what: &str, frees: bool, change: Change) -> Result<(), StoreError> {
        let written = crash::fault("syncing")
            .and_then(|()| self.database.commit(Durable::Now, frees, change));
        written.map_err(|source| StoreError::Write {
            what: what.to_owned(),
            source,
        })
    }

    /// Returns the kept configurations of a probe, oldest first. `current` is the number of its
    /// present revision.
    pub fn revisions(&self, name: &str, current: u64) -> Result<Vec<Revision>, StoreError> {
        let from = current.saturating_sub(REVISIONS - 1);
        let sql =
            "SELECT revision, record FROM revisions WHERE name = ?1 AND revision BETWEEN ?2 AND ?3";
        let records = self.read("the revisions", |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let row = |row: &twinprobe_store::Row<'_>| {
                Ok((row.get::<_, u64>(0)?, row.get::<_, Vec<u8>>(1)?))
            };
            statement
                .query_map(params![name, from, current], row)?
                .collect::<twinprobe_store::Result<Vec<_>>>()
        })?;
        let mut found = Vec::new();
        for (revision, record) in records {
            let Some(StoredRevision {
                created,
                pushed_by,
                message,
                config,
            }) = format::parse_revision(&record)
            else {
                tracing::warn!(
                    probe = name,
                    revision,
                    "a revision can't be read and is left out"
                );
                continue;
            };
            let current = revision == current;
            found.push(Revision {
                revision,
                created,
                pushed_by,
                message,
                current,
                config,
            });
        }
        Ok(found)
    }

    /// Stores a compiled source, in place of a damaged file if there is one. Returns its digest,
    /// which is the name for [`Self::object`]. The file survives a power failure only after
    /// [`Self::prepare`]. Before that, a power failure can leave a damaged file of this name.
    pub fn keep_object(&self, elf: &[u8]) -> Result<String, StoreError> {
        let digest = digest(elf);
        let path = self.object_path(&digest);
        if !fs::read(&path).is_ok_and(|kept| kept == elf) {
            self.lasting_objects.lock().remove(&digest);
            let kept = write(&self.objects, elf).and_then(|file| Ok(file.persist(&path)?));
            kept.map_err(failed("writing", &path))?;
        }
        Ok(digest)
    }

    /// Makes stored objects survive a power failure.
    pub fn sync_objects<'a>(
        &self,
        digests: impl IntoIterator<Item = &'a String>,
    ) -> Result<(), StoreError> {
        let mut lasting = self.lasting_objects.lock();
        let new: Vec<&String> = digests
            .into_iter()
            .filter(|digest| !lasting.contains(*digest))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let files = new.iter().map(|digest| self.object_path(digest));
        for path in files.chain([self.objects.clone()]) {
            lasting::sync(&path).map_err(failed("syncing", &path))?;
        }
        lasting.extend(new.into_iter().cloned());
        Ok(())
    }

    /// Keeps the objects that a rule may deploy, until the rule names others or
    /// [`Self::release_objects`] is called.
    pub fn keep_objects_for(&self, rule: &str, elfs: &[Vec<u8>]) -> Result<(), StoreError> {
        // A sweep must find the objects in the list before they are in the directory.
        let digests: BTreeSet<String> = elfs.iter().map(|elf| digest(elf)).collect();
        self.objects_of_rules
            .lock()
            .insert(rule.to_owned(), digests.clone());
        elfs.iter()
            .try_for_each(|elf| self.keep_object(elf).map(drop))?;
        self.sync_objects(&digests)
    }

    /// Allows the next sweep to remove the objects of a rule.
    pub fn release_objects(&self, rule: &str) {
        self.objects_of_rules.lock().remove(rule);
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

    /// Returns the number of the newest revision of a probe; 0 if there is none.
    pub fn last_revision(&self, name: &str) -> u64 {
        let sql = "SELECT max(revision) FROM revisions WHERE name = ?1";
        let found = self.read("the revisions", |connection| {
            connection
                .prepare_cached(sql)?
                .query_row([name], |row| row.get::<_, Option<u64>>(0))
        });
        found.ok().flatten().unwrap_or(0)
    }

    /// Removes the objects that no stored probe uses. Removes none if a stored probe can't be read,
    /// because the objects of that probe are not known. Must be called while nothing else changes.
    pub fn sweep_objects(&self) {
        let Ok(stored) = self.load() else { return };
        let mut used = BTreeSet::new();
        for (_, stored) in stored {
            let Ok(stored) = stored else { return };
            used.extend(
                stored
                    .running
                    .into_iter()
                    .flat_map(|running| running.objects.into_values()),
            );
        }
        used.extend(self.objects_of_rules.lock().values().flatten().cloned());
        self.lasting_objects
            .lock()
            .retain(|digest| used.contains(digest));
        let is_used = |name: &str| {
            name.strip_suffix(".o")
                .is_some_and(|name| used.contains(name))
        };
        remove_but(&self.objects, is_used);
    }

    fn object_path(&self, digest: &str) -> PathBuf {
        self.objects.join(format!("{digest}.o"))
    }
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

/// Removes the temporary files of a daemon that was killed during a write.
fn clean(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(TEMPORARY))
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes a temporary file, which [`sync`] later makes durable.
fn write(directory: &Path, content: &[u8]) -> io::Result<tempfile::TempPath> {
    let mut file = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .tempfile_in(directory)?;
    file.write_all(content)?;
    Ok(file.into_temp_path())
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
