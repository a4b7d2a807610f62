//! The windows of all probes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use tokio::sync::broadcast;
use twinprobe_store::{Change, Database};

use crate::body::draft::Bodies;
use crate::index::index::WindowIndex;
use crate::index::restore::{mend, restore};
use crate::readers::Readers;
use crate::rows;
use crate::told::{BEHIND, Closed, WindowTeller};
use crate::windows::{Shared, Windows};

type Opened = BTreeMap<String, Arc<Windows>>;

/// The directory of large bodies in the state directory.
pub const BODIES: &str = "bodies";

/// The windows of all probes, and the room that they may take on the disk.
#[derive(Debug)]
pub struct WindowStore {
    shared: Shared,
    budget: u64,
    /// The windows that clients are reading.
    pub readers: Readers,
    /// A message for each newly listed window.
    pub closed: broadcast::Sender<Arc<Closed>>,
    /// The windows of all probes. Readers of all probes share the map, and read it after each
    /// window.
    probes: Mutex<Arc<Opened>>,
    next: AtomicI64,
    /// The lock that lets one thread at a time make room: two threads would remove too much.
    enforcing: Mutex<()>,
}

impl WindowStore {
    /// Opens the windows in a state directory. `budget` is the room for all windows, sums and
    /// damaged windows; `keep_free` is the room on the file system that windows leave free, at most
    /// a twentieth of it; both in bytes.
    pub fn open(
        state_dir: &Path,
        database: &Arc<Database>,
        budget: u64,
        keep_free: u64,
    ) -> io::Result<Self> {
        let bodies = Arc::new(Bodies::new(state_dir.join(BODIES)));
        let shared = Shared {
            database: Arc::clone(database),
            bodies,
            keep_free,
        };
        let store = Self {
            shared,
            budget,
            readers: Readers::default(),
            closed: broadcast::Sender::new(BEHIND),
            probes: Mutex::default(),
            next: AtomicI64::new(1),
            enforcing: Mutex::default(),
        };
        store.load()?;
        Ok(store)
    }

    /// Reads all windows in the store. Unless the store was opened to be read, this removes the
    /// files of bodies that it does not name, and sets damaged windows aside.
    fn load(&self) -> io::Result<()> {
        let bodies = &self.shared.bodies;
        let mut files = bodies.found()?;
        files.iter().for_each(|&id| bodies.skip(id));
        let mut probes = Opened::new();
        for series in rows::load(&self.shared.database)? {
            self.next
                .fetch_max(series.id.saturating_add(1), Ordering::Relaxed);
            let (id, name) = (series.id, series.name.clone());
            let mut damaged = Vec::new();
            let windows = Windows::new(
                self.shared.clone(),
                (id, &name),
                true,
                self.told(&name),
                |source| {
                    let (index, found) = restore(series, &source, &files);
                    damaged = found;
                    index
                },
            );
            let (of_windows, of_baselines) = windows.index.lock().all();
            for (id, is_file) in of_windows.into_iter().chain(of_baselines) {
                bodies.skip(id);
                if is_file {
                    files.remove(&id);
                }
            }
            mend(&windows, &damaged);
            probes.insert(name, windows);
        }
        if !self.shared.database.is_read_only() {
            files.into_iter().for_each(|id| bodies.remove(id));
        }
        *self.probes.lock() = Arc::new(probes);
        Ok(())
    }

    fn told(&self, name: &str) -> Option<WindowTeller> {
        Some(WindowTeller {
            probe: name.to_owned(),
            closed: self.closed.clone(),
        })
    }

    /// The windows of all probes.
    pub fn all(&self) -> Vec<Arc<Windows>> {
        self.probes.lock().values().cloned().collect()
    }

    /// Returns the windows of a probe, which may be none yet.
    pub fn of(&self, probe: &str) -> Arc<Windows> {
        let mut probes = self.probes.lock();
        let windows = Arc::make_mut(&mut probes)
            .entry(probe.to_owned())
            .or_insert_with(|| {
                let series = self.next.fetch_add(1, Ordering::Relaxed);
                Windows::new(
                    self.shared.clone(),
                    (series, probe),
                    false,
                    self.told(probe),
                    |_| WindowIndex::default(),
                )
            });
        Arc::clone(windows)
    }

    /// Removes the windows of a probe. `commit` makes the given change together with the removal of
    /// the probe, in one transaction. After that, other holders of these windows can't write any
    /// more.
    pub fn remove<E>(
        &self,
        probe: &str,
        commit: impl FnOnce(Change) -> Result<(), E>,
    ) -> Result<(), E> {
        let opened = self.probes.lock().get(probe).cloned();
        let Some(windows) = opened else {
            return commit(Box::new(|_| Ok(())));
        };
        windows.remove(commit)?;
        Arc::make_mut(&mut self.probes.lock()).remove(probe);
        Ok(())
    }

    /// Writes facts that otherwise only the rows of windows contain. The daemon calls this at its
    /// end. If a row is missing at the next start, its window counts as damaged.
    pub fn settle(&self) {
        self.all().iter().for_each(|windows| windows.save());
    }

    /// Tells whether [`Self::enforce`] may have something to do.
    pub fn exceeds_budget(&self) -> bool {
        let probes = Arc::clone(&self.probes.lock());
        let bytes = probes.values().map(|windows| windows.index.lock().bytes());
        bytes.sum::<u64>() > self.budget || !self.readers.is_empty()
    }

    /// Drops windows that were set aside, then the oldest windows of all probes, while the budget
    /// is exceeded; the newest window of each probe stays. Removed windows that slow readers still
    /// hold have a budget of the same size.
    pub fn enforce(&self) {
        let _turn = self.enforcing.lock();
        let probes = Arc::clone(&self.probes.lock());
        while probes
            .values()
            .map(|windows| windows.index.lock().bytes())
            .sum::<u64>()
            > self.budget
        {
            if probes.values().any(|windows| windows.drop_damaged()) {
                continue;
            }
            // All times are in UTC and have the same length, so that the order of the texts is the
            // order of the times.
            let end = |windows: &&Arc<Windows>| {
                windows
                    .index
                    .lock()
                    .oldest()
                    .map(|window| window.entry.end.clone())
            };
            let oldest = probes
                .values()
                .filter(|windows| end(windows).is_some())
                .min_by_key(end);
            if !oldest.is_some_and(|windows| windows.drop_oldest()) {
                begin_anew(&probes);
                break;
            }
        }
        self.readers.limit(self.budget);
    }

    /// Returns the statistics of the windows of each probe.
    #[cfg(test)]
    pub fn statistics(&self) -> BTreeMap<String, crate::windows::WindowStatistics> {
        let probes = Arc::clone(&self.probes.lock());
        probes
            .iter()
            .map(|(probe, windows)| (probe.clone(), windows.statistics()))
            .collect()
    }
}

/// Demands whole sums in the next window of the probe whose windows take the most room together.
/// Once the store has that window, the earlier windows can be removed.
fn begin_anew(probes: &Opened) {
    let together = |windows: &&Arc<Windows>| {
        let (count, bytes, _) = windows.index.lock().together();
        if count > 1 { bytes } else { 0 }
    };
    let most = probes
        .values()
        .filter(|windows| together(windows) > 0)
        .max_by_key(together);
    most.into_iter().for_each(|windows| windows.begin_anew());
}
