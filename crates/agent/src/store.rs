//! The state directory:
//!
//! | file | content |
//! |---|---|
//! | `probes/NAME.json` | a probe's configuration and the deployment that runs it |
//! | `revisions/NAME/N.json` | its configurations so far |
//! | `objects/DIGEST.o` | compiled sources, by their SHA-256 |
//! | `totals/NAME/METRIC` | the sums of the windows of cumulative metrics |
//! | `windows/NAME/SEQ.window` | retained windows; see `engine::windows` |
//! | `lock` | keeps a second daemon out |
//!
//! Files are replaced whole, so a crash leaves the old or the new one. What `probes/` says is what shall run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::config::{ConfigDocument, parse_document};
use crate::kernel::Deployment;

/// Configurations of a probe that are kept.
const REVISIONS: u64 = 32;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the state directory {0} is in use by another twinprobe; give each its own --state-dir")]
    InUse(PathBuf),
    #[error("{action} {path} failed")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The state on disk.
#[derive(Debug)]
pub struct Store {
    probes: PathBuf,
    revisions: PathBuf,
    objects: PathBuf,
    totals: PathBuf,
    /// Locked while the daemon lives.
    _lock: File,
}

/// What is stored about a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredProbe {
    pub revision: u64,
    /// When the probe was first deployed, RFC 3339.
    pub created: String,
    pub config: ConfigDocument,
    /// `None` for a probe that was never deployed by this version.
    pub running: Option<StoredDeployment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDeployment {
    pub deployment: Deployment,
    /// The digest of each direction's object.
    pub objects: BTreeMap<String, String>,
}

/// One configuration of a probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Revision {
    pub revision: u64,
    /// When it was deployed, RFC 3339.
    pub created: String,
    /// Whether it is the one that is deployed.
    pub current: bool,
    pub config: ConfigDocument,
}

/// A probe's name, and what is stored or why it can't be read.
pub type Stored = (String, Result<StoredProbe, String>);

/// A probe's state that is on disk but not yet under its name. Dropping it forgets it.
#[derive(Debug)]
pub struct Pending<'a> {
    store: &'a Store,
    temporary: tempfile::TempPath,
    path: PathBuf,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

impl Store {
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
        let [probes, revisions, objects, totals] =
            ["probes", "revisions", "objects", "totals"].map(|directory| state_dir.join(directory));
        for directory in [&probes, &revisions, &objects, &totals] {
            fs::create_dir_all(directory).map_err(failed("creating", directory))?;
        }
        let lock_path = state_dir.join("lock");
        // One that is there may be on a file system that is read-only now: what runs can still be adopted. It is
        // not held for writing, which would keep a file system from becoming read-only.
        let open = || File::open(&lock_path);
        let lock = open().or_else(|_| File::create(&lock_path).and_then(|_| open()));
        let lock = lock.map_err(failed("creating", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { probes, revisions, objects, totals, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(StoreError::InUse(state_dir.to_owned())),
            Err(fs::TryLockError::Error(error)) => Err(failed("locking", &lock_path)(error)),
        }
    }

    /// Every stored probe by name.
    pub fn load(&self) -> Result<Vec<Stored>, StoreError> {
        let mut out = Vec::new();
        for entry in fs::read_dir(&self.probes).map_err(failed("reading", &self.probes))? {
            let path = entry.map_err(failed("reading", &self.probes))?.path();
            // Anything else is a temporary file of a daemon that was killed while writing.
            let Some(name) =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"))
            else {
                let _ = fs::remove_file(&path);
                continue;
            };
            let stored = fs::read(&path).map_err(|error| error.to_string()).and_then(|bytes| parse(&bytes));
            out.push((name.to_owned(), stored));
        }
        out.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(out)
    }

    /// Brings a probe's state onto the disk; [`Pending::commit`] makes it the one that is loaded.
    pub fn prepare(&self, name: &str, probe: &StoredProbe) -> Result<Pending<'_>, StoreError> {
        let config = serde_json::to_value(&probe.config).unwrap_or_default();
        let created = jiff::Timestamp::now().to_string();
        let history = self.revisions.join(name);
        fs::create_dir_all(&history).map_err(failed("creating", &history))?;
        let path = history.join(format!("{}.json", probe.revision));
        let revision = serde_json::json!({ "created": created, "config": config });
        let kept = write(&history, &revision).and_then(|file| Ok(file.persist(&path)?));
        kept.map_err(failed("writing", &path))?;
        let _ = fs::remove_file(history.join(format!("{}.json", probe.revision.saturating_sub(REVISIONS))));
        let path = self.path(name);
        let state = serde_json::json!({
            "revision": probe.revision,
            "created": probe.created,
            "config": config,
            "running": probe.running,
        });
        let temporary = write(&self.probes, &state).map_err(failed("writing", &path))?;
        Ok(Pending { store: self, temporary, path })
    }

    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.and_then(|()| sync(&self.probes)).map_err(failed("removing", &path)),
        }?;
        for path in [self.revisions.join(name), self.totals.join(name)] {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "what a probe has left could not be removed");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where the sums of a probe's windows are.
    pub fn totals(&self, name: &str) -> PathBuf {
        self.totals.join(name)
    }

    /// The configurations of a probe whose present one is `current`, oldest first.
    pub fn revisions(&self, name: &str, current: u64) -> Result<Vec<Revision>, StoreError> {
        let history = self.revisions.join(name);
        let mut found = Vec::new();
        for revision in current.saturating_sub(REVISIONS - 1)..=current {
            let path = history.join(format!("{revision}.json"));
            match fs::read(&path) {
                Ok(bytes) => found.extend(parse_revision(&bytes, revision, revision == current)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("reading", &path)(error)),
            }
        }
        Ok(found)
    }

    /// Keeps a compiled source; the name it can be had back by.
    pub fn keep_object(&self, elf: &[u8]) -> Result<String, StoreError> {
        let digest = digest(elf);
        let path = self.object_path(&digest);
        if !path.exists() {
            let write = || {
                let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.objects)?;
                file.write_all(elf)?;
                file.as_file().sync_all()?;
                file.persist(&path).map(drop).map_err(|error| error.error)
            };
            write().map_err(failed("writing", &path))?;
        }
        Ok(digest)
    }

    /// What was kept, undamaged.
    pub fn object(&self, name: &str) -> Result<Vec<u8>, String> {
        let elf = fs::read(self.object_path(name)).map_err(|error| format!("object {name}: {error}"))?;
        if digest(&elf) == name { Ok(elf) } else { Err(format!("object {name} is damaged")) }
    }

    /// Forgets objects and histories that nobody uses.
    pub fn sweep(&self, objects: &BTreeSet<String>, probes: &BTreeSet<String>) {
        let remove = |directory: &Path, used: &dyn Fn(&str) -> bool| -> io::Result<()> {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                if entry.file_name().to_str().is_some_and(used) {
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
        let is_object = |name: &str| name.strip_suffix(".o").is_some_and(|name| objects.contains(name));
        let swept = remove(&self.objects, &is_object)
            .and_then(|()| remove(&self.revisions, &|name| probes.contains(name)))
            .and_then(|()| remove(&self.totals, &|name| probes.contains(name)));
        if let Err(error) = swept {
            tracing::warn!(%error, "files that nobody needs could not be removed");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.probes.join(format!("{name}.json"))
    }

    fn object_path(&self, digest: &str) -> PathBuf {
        self.objects.join(format!("{digest}.o"))
    }
}

impl Pending<'_> {
    pub fn commit(self) -> Result<(), StoreError> {
        let Self { store, temporary, path } = self;
        temporary
            .persist(&path)
            .map_err(|error| error.error)
            .and_then(|()| sync(&store.probes))
            .map_err(failed("writing", &path))
    }
}

fn write(directory: &Path, content: &Value) -> io::Result<tempfile::TempPath> {
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(directory)?;
    serde_json::to_writer(&mut file, content)?;
    file.flush()?;
    file.as_file().sync_all()?;
    Ok(file.into_temp_path())
}

/// Makes renames and removals last.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(bytes: &[u8]) -> Result<StoredProbe, String> {
    let mut state: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    // Versions before 0.2 stored the configuration only.
    let Some(revision) = state.get("revision").and_then(Value::as_u64) else {
        let config = parse_document(bytes).map_err(|error| error.to_string())?;
        return Ok(StoredProbe { revision: 0, created: String::new(), config, running: None });
    };
    let running = serde_json::from_value(state["running"].take()).unwrap_or_else(|error| {
        tracing::warn!(%error, "the record of a deployment can't be read");
        None
    });
    Ok(StoredProbe {
        revision,
        created: state["created"].as_str().unwrap_or_default().to_owned(),
        config: parse_document(state["config"].to_string().as_bytes()).map_err(|error| error.to_string())?,
        running,
    })
}

fn parse_revision(bytes: &[u8], revision: u64, current: bool) -> Option<Revision> {
    let state: Value = serde_json::from_slice(bytes).ok()?;
    let config = parse_document(state["config"].to_string().as_bytes()).ok()?;
    Some(Revision { revision, created: state["created"].as_str()?.to_owned(), current, config })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(revision: u64, interface: &str) -> StoredProbe {
        let config = ConfigDocument { interface: Some(interface.into()), ..ConfigDocument::default() };
        StoredProbe { revision, created: "2026-01-01T00:00:00Z".into(), config, running: None }
    }

    #[test]
    fn what_was_committed_is_loaded_and_what_was_not_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.prepare("a.b", &probe(1, "eth0")).unwrap().commit().unwrap();
        store.prepare("a.b", &probe(2, "eth1")).unwrap().commit().unwrap();
        drop(store.prepare("a.b", &probe(3, "eth3")).unwrap());
        drop(store.prepare("other", &probe(1, "eth2")).unwrap());
        assert_eq!(store.load().unwrap(), vec![("a.b".to_owned(), Ok(probe(2, "eth1")))]);
        let revisions = store.revisions("a.b", 2).unwrap();
        let numbers: Vec<_> = revisions.iter().map(|r| (r.revision, r.current)).collect();
        assert_eq!(numbers, [(1, false), (2, true)]);
        store.remove("a.b").unwrap();
        store.remove("a.b").unwrap();
        assert!(store.load().unwrap().is_empty());
        assert!(store.revisions("a.b", 2).unwrap().is_empty());
    }

    #[test]
    fn a_second_daemon_is_kept_out() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::open(dir.path()).unwrap();
        assert!(matches!(Store::open(dir.path()), Err(StoreError::InUse(_))));
        drop(first);
        Store::open(dir.path()).unwrap();
    }

    #[test]
    fn a_damaged_file_is_reported_not_fatal() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        fs::write(dir.path().join("probes/bad.json"), b"{\"interface\": ").unwrap();
        let loaded = store.load().unwrap();
        assert!(matches!(&loaded[..], [(name, Err(_))] if name == "bad"));
    }

    #[test]
    fn a_damaged_object_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let name = store.keep_object(b"elf").unwrap();
        assert_eq!(store.object(&name).unwrap(), b"elf");
        fs::write(dir.path().join(format!("objects/{name}.o")), b"elg").unwrap();
        assert!(store.object(&name).unwrap_err().contains("damaged"));
        store.sweep(&BTreeSet::new(), &BTreeSet::new());
        assert!(store.object(&name).is_err());
    }
}
