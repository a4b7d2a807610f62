//! The state directory: one JSON file for each probe's configuration, and a lock that keeps a second daemon
//! out. Files are replaced whole, so a crash leaves the old or the new configuration.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::config::{ConfigDocument, parse_document};

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

/// The configurations on disk.
#[derive(Debug)]
pub struct Store {
    probes: PathBuf,
    /// Locked while the daemon lives.
    _lock: File,
}

/// A probe's name, and its configuration or why it can't be read.
pub type Stored = (String, Result<ConfigDocument, String>);

/// A configuration that is on disk but not yet under its name. Dropping it forgets it.
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
        let probes = state_dir.join("probes");
        fs::create_dir_all(&probes).map_err(failed("creating", &probes))?;
        let lock_path = state_dir.join("lock");
        let lock = File::create(&lock_path).map_err(failed("creating", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { probes, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(StoreError::InUse(state_dir.to_owned())),
            Err(fs::TryLockError::Error(error)) => Err(failed("locking", &lock_path)(error)),
        }
    }

    /// Every stored configuration by name; what can't be read comes as the reason why.
    pub fn load(&self) -> Result<Vec<Stored>, StoreError> {
        let mut out = Vec::new();
        for entry in fs::read_dir(&self.probes).map_err(failed("reading", &self.probes))? {
            let path = entry.map_err(failed("reading", &self.probes))?.path();
            // Anything else is a temporary file of a daemon that was killed while writing.
            let Some(name) =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"))
            else {
                continue;
            };
            let document = fs::read(&path)
                .map_err(|error| error.to_string())
                .and_then(|bytes| parse_document(&bytes).map_err(|error| error.to_string()));
            out.push((name.to_owned(), document));
        }
        out.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(out)
    }

    /// Brings a configuration onto the disk; [`Pending::commit`] makes it the one that is loaded.
    pub fn prepare(&self, name: &str, document: &ConfigDocument) -> Result<Pending<'_>, StoreError> {
        let path = self.path(name);
        let write = || -> io::Result<tempfile::TempPath> {
            let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.probes)?;
            serde_json::to_writer(&mut file, document)?;
            file.flush()?;
            file.as_file().sync_all()?;
            Ok(file.into_temp_path())
        };
        let temporary = write().map_err(failed("writing", &path))?;
        Ok(Pending { store: self, temporary, path })
    }

    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.and_then(|()| self.sync()).map_err(failed("removing", &path)),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.probes.join(format!("{name}.json"))
    }

    /// Makes renames and removals last.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.probes)?.sync_all()
    }
}

impl Pending<'_> {
    pub fn commit(self) -> Result<(), StoreError> {
        let Self { store, temporary, path } = self;
        temporary
            .persist(&path)
            .map_err(|error| error.error)
            .and_then(|()| store.sync())
            .map_err(failed("writing", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(interface: &str) -> ConfigDocument {
        ConfigDocument { interface: Some(interface.into()), ..ConfigDocument::default() }
    }

    #[test]
    fn what_was_committed_is_loaded_and_what_was_not_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.prepare("a.b", &document("eth0")).unwrap().commit().unwrap();
        store.prepare("a.b", &document("eth1")).unwrap().commit().unwrap();
        drop(store.prepare("other", &document("eth2")).unwrap());
        let loaded = store.load().unwrap();
        assert_eq!(loaded, vec![("a.b".to_owned(), Ok(document("eth1")))]);
        store.remove("a.b").unwrap();
        store.remove("a.b").unwrap();
        assert!(store.load().unwrap().is_empty());
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
}
