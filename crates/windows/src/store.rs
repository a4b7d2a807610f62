//! The windows of all probes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::{fs, io};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::file::directory::Directory;
use crate::readers::Readers;
use crate::told::{BEHIND, Closed, Told};
use crate::windows::Windows;

/// The windows of all probes, and the room that they may take on the disk.
#[derive(Debug)]
pub struct WindowStore {
    root: PathBuf,
    budget: u64,
    keep_free: u64,
    /// Clients that take windows.
    pub readers: Readers,
    /// Tells of each window that is listed from now on.
    pub closed: broadcast::Sender<Arc<Closed>>,
    /// The windows that have been opened. A cell is filled without holding the lock, because opening reads every file.
    probes: Mutex<BTreeMap<String, Arc<OnceLock<Arc<Windows>>>>>,
    /// The lock that lets one thread at a time make room: two threads would remove too much.
    enforcing: Mutex<()>,
}

impl WindowStore {
    /// A store in the directory `root`. `budget` is the room for all windows, sums and damaged files; `keep_free` is the
    /// room on the file system that windows leave free, at most a twentieth of it; both in bytes.
    pub fn new(root: PathBuf, budget: u64, keep_free: u64) -> Self {
        Self {
            root,
            budget,
            keep_free,
            readers: Readers::default(),
            closed: broadcast::Sender::new(BEHIND),
            probes: Mutex::default(),
            enforcing: Mutex::default(),
        }
    }

    /// The windows of a probe, which may not have any yet.
    pub fn of(&self, probe: &str) -> Arc<Windows> {
        let place = Arc::clone(self.probes.lock().entry(probe.to_owned()).or_default());
        Arc::clone(place.get_or_init(|| {
            let told = Told { probe: probe.to_owned(), closed: self.closed.clone() };
            Windows::open_in(Directory::new(self.root.join(probe)), self.keep_free, Some(told))
        }))
    }

    /// Removes the windows of a probe that was removed. Other holders of these windows can write no more.
    pub fn remove(&self, probe: &str) {
        let opened = self.probes.lock().get(probe).and_then(|place| place.get().cloned());
        let removed = match opened {
            Some(windows) => windows.remove(),
            None => Directory::new(self.root.join(probe)).remove_all(),
        };
        if let Err(error) = removed {
            tracing::warn!(probe, %error, "the windows of a probe could not be removed");
        }
        // The entry goes last: a caller that asks meanwhile must not open files that are about to go.
        self.probes.lock().remove(probe);
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

    /// Drops files that were set aside, then the oldest windows of all probes, while the budget is exceeded; the newest
    /// window of each probe stays. What slow readers keep of windows that have gone is limited to another budget.
    pub fn enforce(&self) {
        let _turn = self.enforcing.lock();
        let all: Vec<Arc<Windows>> = self.opened().map(|(_, windows)| windows).collect();
        while all.iter().map(|windows| windows.index.lock().bytes()).sum::<u64>() > self.budget {
            if all.iter().any(|windows| windows.drop_damaged()) {
                continue;
            }
            // All times are in UTC and of the same length, so the order of the texts is that of the times.
            let end = |windows: &&Arc<Windows>| {
                windows.index.lock().oldest().map(|window| window.entry.end.clone())
            };
            let oldest = all.iter().filter(|windows| end(windows).is_some()).min_by_key(end);
            if !oldest.is_some_and(|windows| windows.drop_oldest()) {
                break;
            }
        }
        self.readers.limit(self.budget);
    }

    /// The statistics of each probe.
    #[cfg(test)]
    pub fn statistics(&self) -> BTreeMap<String, crate::windows::Statistics> {
        self.opened().map(|(probe, windows)| (probe, windows.statistics())).collect()
    }

    fn opened(&self) -> impl Iterator<Item = (String, Arc<Windows>)> {
        let probes = self.probes.lock().clone();
        probes.into_iter().filter_map(|(probe, place)| Some((probe, Arc::clone(place.get()?))))
    }
}
