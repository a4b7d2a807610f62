//! The parts that readings need in addition to the probes: the clock that closes windows, the
//! retained windows, and places for replays.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use twinprobe_api::LastRead;
use twinprobe_kernel::clock::{Moment, rfc3339};
use twinprobe_windows::WindowStore;

use crate::engine::clock::Clock;
use crate::engine::window::delivery::{Delivery, ReadingSubject};
use crate::limits::options::RequestLimits;
use crate::limits::queue::Queue;

/// The number of a probe's readers that are remembered. A reader that finds no window wants to know
/// who read the last ones.
const LAST: usize = 2;

#[derive(Debug)]
pub struct Readings {
    pub windows: Arc<WindowStore>,
    pub clock: Clock,
    pub replays: Queue,
    /// The last readers of windows by a GET of the metrics, the newest first, by the name of the
    /// probe. A restart forgets them.
    last: Mutex<BTreeMap<String, Vec<LastRead>>>,
}

impl Readings {
    pub fn new(windows: WindowStore, limits: &RequestLimits) -> io::Result<Self> {
        let replays = Queue::new("replays", "--max-replays", limits.max_replays.get());
        Ok(Self {
            windows: Arc::new(windows),
            clock: Clock::start()?,
            replays,
            last: Mutex::default(),
        })
    }

    /// Notes who gets a window, and forgets the probes for which `is_known` returns false.
    pub fn note(&self, delivery: &Delivery, by: String, is_known: impl Fn(&str) -> bool) {
        let ReadingSubject::Window { window, .. } = &delivery.subject else {
            return;
        };
        let at = rfc3339(Moment::now().wall);
        let mut last = self.last.lock();
        last.retain(|name, _| is_known(name));
        let of_probe = last.entry(delivery.probe.clone()).or_default();
        of_probe.insert(
            0,
            LastRead {
                by,
                at,
                seq: window.seq,
            },
        );
        of_probe.truncate(LAST);
    }

    /// Returns the last readers of a probe. Readers of an earlier probe with the same name do not
    /// count.
    pub fn last(&self, name: &str, created: &str) -> Vec<LastRead> {
        let last = self.last.lock().get(name).cloned().unwrap_or_default();
        last.into_iter()
            .filter(|last| last.at.as_str() >= created)
            .collect()
    }

    /// Notes that a client is about to take a reading, perhaps slowly.
    pub fn tracked(&self, delivery: Delivery) -> Delivery {
        delivery
            .stored()
            .into_iter()
            .for_each(|window| self.windows.readers.add(window));
        delivery
    }
}
