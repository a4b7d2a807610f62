//! The windows of all probes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::{fs, io};

use crate::file::directory::Directory;
use crate::windows::{Windows, lock};

/// Where the windows of all probes are, and how much room they may take.
#[derive(Debug)]
pub struct WindowStore {
    root: PathBuf,
    budget: u64,
    /// Filled without holding the lock: opening reads every file.
    probes: Mutex<BTreeMap<String, Arc<OnceLock<Arc<Windows>>>>>,
    /// Two that made room at once would make too much.
    enforcing: Mutex<()>,
}

impl WindowStore {
    /// `budget` is in bytes.
    pub const fn new(root: PathBuf, budget: u64) -> Self {
        Self { root, budget, probes: Mutex::new(BTreeMap::new()), enforcing: Mutex::new(()) }
    }

    /// The windows of a probe, which may not have any yet.
    pub fn of(&self, probe: &str) -> Arc<Windows> {
        let place = Arc::clone(lock(&self.probes).entry(probe.to_owned()).or_default());
        Arc::clone(place.get_or_init(|| Windows::open(self.root.join(probe))))
    }

    /// Forgets the windows of a probe that was removed. Who still has them can write no more.
    pub fn remove(&self, probe: &str) {
        let opened = lock(&self.probes).get(probe).and_then(|place| place.get().cloned());
        let removed = match opened {
            Some(windows) => windows.remove(),
            None => Directory::new(self.root.join(probe)).remove_all(),
        };
        if let Err(error) = removed {
            tracing::warn!(probe, %error, "the windows of a probe could not be removed");
        }
        // Not before: who asks for them meanwhile must not find what is about to go.
        lock(&self.probes).remove(probe);
    }

    /// Forgets the windows of all probes but these.
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
                tracing::warn!(%error, "windows of probes that are no more could not be removed");
            }
            _ => {}
        }
    }

    /// Over the budget, the oldest windows go, whichever probe they are of; of each probe the newest stays.
    pub fn enforce(&self) {
        let _turn = lock(&self.enforcing);
        let all: Vec<Arc<Windows>> = self.opened().map(|(_, windows)| windows).collect();
        while all.iter().map(|windows| lock(&windows.index).bytes()).sum::<u64>() > self.budget {
            // All in UTC and of the same length: in the order of the time.
            let end =
                |windows: &&Arc<Windows>| lock(&windows.index).oldest().map(|window| window.end().to_owned());
            let oldest = all.iter().filter(|windows| end(windows).is_some()).min_by_key(end);
            if !oldest.is_some_and(|windows| windows.drop_oldest()) {
                break;
            }
        }
    }

    /// By probe.
    #[cfg(test)]
    pub fn statistics(&self) -> BTreeMap<String, crate::windows::Statistics> {
        self.opened().map(|(probe, windows)| (probe, windows.statistics())).collect()
    }

    fn opened(&self) -> impl Iterator<Item = (String, Arc<Windows>)> {
        let probes = lock(&self.probes).clone();
        probes.into_iter().filter_map(|(probe, place)| Some((probe, Arc::clone(place.get()?))))
    }
}
