//! The windows of all probes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::{fs, io};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::file::directory::Directory;
use crate::file::spare::IsUnshared;
use crate::log::log::Log;
use crate::readers::Readers;
use crate::told::{BEHIND, Closed, Told};
use crate::windows::Windows;

type Opened = BTreeMap<String, Arc<OnceLock<Arc<Windows>>>>;

/// The windows of all probes, and the room that they may take on the disk.
#[derive(Debug)]
pub struct WindowStore {
    root: PathBuf,
    log: Option<Arc<Log>>,
    is_unshared: Option<IsUnshared>,
    budget: u64,
    keep_free: u64,
    /// Clients that take windows.
    pub readers: Readers,
    /// Tells of each window that is listed from now on.
    pub closed: broadcast::Sender<Arc<Closed>>,
    /// The windows that have been opened. A cell is filled without holding the lock, because opening reads every file.
    /// The map is shared with whoever goes through all probes, since that happens after each window.
    probes: Mutex<Arc<Opened>>,
    /// The lock that lets one thread at a time make room: two threads would remove too much.
    enforcing: Mutex<()>,
}

impl WindowStore {
    /// A store in the directory `root`. `budget` is the room for all windows, sums and damaged files; `keep_free` is the
    /// room on the file system that windows leave free, at most a twentieth of it; both in bytes. `boot` is the identity
    /// of this boot of the machine: files that an earlier boot has forgotten are restored.
    pub fn open(root: PathBuf, boot: &str, budget: u64, keep_free: u64) -> Self {
        Self {
            log: Log::open(&root, boot),
            is_unshared: None,
            root,
            budget,
            keep_free,
            readers: Readers::default(),
            closed: broadcast::Sender::new(BEHIND),
            probes: Mutex::default(),
            enforcing: Mutex::default(),
        }
    }

    /// Lets small files be written again that nobody else has open, as far as `is_unshared` can tell.
    pub fn reusing(self, is_unshared: IsUnshared) -> Self {
        Self { is_unshared: Some(is_unshared), ..self }
    }

    /// The windows of a probe, which may not have any yet.
    pub fn of(&self, probe: &str) -> Arc<Windows> {
        let place = self.place(probe);
        Arc::clone(place.get_or_init(|| {
            let told = Told { probe: probe.to_owned(), closed: self.closed.clone() };
            Windows::open_in(self.directory(probe), self.keep_free, Some(told))
        }))
    }

    fn directory(&self, probe: &str) -> Directory {
        Directory::with_log(self.root.join(probe), self.log.clone()).reusing(self.is_unshared)
    }

    fn place(&self, probe: &str) -> Arc<OnceLock<Arc<Windows>>> {
        let mut probes = self.probes.lock();
        if let Some(place) = probes.get(probe) {
            return Arc::clone(place);
        }
        Arc::clone(Arc::make_mut(&mut probes).entry(probe.to_owned()).or_default())
    }

    /// Removes the windows of a probe that was removed. Other holders of these windows can write no more.
    pub fn remove(&self, probe: &str) {
        let opened = self.probes.lock().get(probe).and_then(|place| place.get().cloned());
        let removed = match opened {
            Some(windows) => windows.remove(),
            None => self.directory(probe).remove_all(),
        };
        if let Err(error) = removed {
            tracing::warn!(probe, %error, "the windows of a probe could not be removed");
        }
        // The entry goes last: a caller that asks meanwhile must not open files that are about to go.
        Arc::make_mut(&mut self.probes.lock()).remove(probe);
    }

    /// Removes the windows of all probes but these.
    pub fn sweep(&self, probes: &BTreeSet<String>) {
        let remove = || -> io::Result<()> {
            for entry in fs::read_dir(&self.root)? {
                let entry = entry?;
                let used = entry.file_name().to_str().is_some_and(|name| probes.contains(name));
                if !used && entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?;
                }
            }
            Ok(())
        };
        match remove() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "windows of removed probes could not be removed");
            }
            _ => {}
        }
    }

    /// Tells whether [`Self::enforce`] may have something to do.
    pub fn exceeds_budget(&self) -> bool {
        let probes = Arc::clone(&self.probes.lock());
        let opened = probes.values().filter_map(|place| place.get());
        opened.map(|windows| windows.index.lock().bytes()).sum::<u64>() > self.budget
            || !self.readers.is_empty()
    }

    /// Drops files that were set aside, then the oldest windows of all probes, while the budget is exceeded; the newest
    /// window of each probe stays. What slow readers keep of windows that have gone is limited to another budget.
    pub fn enforce(&self) {
        let _turn = self.enforcing.lock();
        let probes = Arc::clone(&self.probes.lock());
        let all = || probes.values().filter_map(|place| place.get());
        while all().map(|windows| windows.index.lock().bytes()).sum::<u64>() > self.budget {
            if all().any(|windows| windows.drop_damaged()) {
                continue;
            }
            // All times are in UTC and of the same length, so the order of the texts is that of the times.
            let end = |windows: &&Arc<Windows>| {
                windows.index.lock().oldest().map(|window| window.entry.end.clone())
            };
            let oldest = all().filter(|windows| end(windows).is_some()).min_by_key(end);
            if !oldest.is_some_and(|windows| windows.drop_oldest()) {
                break;
            }
        }
        self.readers.limit(self.budget);
    }

    /// The statistics of each probe.
    #[cfg(test)]
    pub fn statistics(&self) -> BTreeMap<String, crate::windows::Statistics> {
        let probes = Arc::clone(&self.probes.lock());
        probes.iter().filter_map(|(probe, place)| Some((probe.clone(), place.get()?.statistics()))).collect()
    }
}
