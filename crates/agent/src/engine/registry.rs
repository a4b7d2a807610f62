//! The list of all probes, and the order of changes in it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use twinprobe_api::meant;

use crate::engine::error::EngineError;
use crate::engine::events::probe_events::ProbeEvents;
use crate::engine::placement::Namespace;
use crate::engine::probe::probe::Probe;
use crate::engine::probe::retained::Expired;
use crate::engine::turns::Turns;

/// Every stored probe, running or not. The list is complete once a start has listed the stored
/// probes.
#[derive(Debug, Default)]
pub struct Registry {
    pub probes: RwLock<BTreeMap<String, Arc<Probe>>>,
    /// The probes whose lease has ended, and whose windows stay.
    pub expired: Expired,
    /// The turns of each probe's changes. A change holds its turn from the load, which reads the
    /// state of the present probe, to the attachment.
    pub turns: Turns,
    /// A lock held while attachments and the registry change.
    pub changes: Arc<tokio::sync::Mutex<()>>,
    /// True if a start has listed the stored probes. It changes only while [`Self::changes`] is
    /// held, like [`Self::detached`].
    pub listed: AtomicBool,
    /// True if all probes were taken out of the kernel for good.
    pub detached: AtomicBool,
    /// The tasks that wait for interfaces, one for each namespace that a probe is in.
    pub watches: Mutex<BTreeMap<Namespace, AbortHandle>>,
    /// Set when the task that checks attachments has started.
    pub looks: OnceLock<()>,
    /// A channel that wakes the requests which wait for a window or a change: a probe was created,
    /// replaced or deleted, or (true) the daemon stops.
    pub disturbed: watch::Sender<bool>,
}

impl Registry {
    pub fn get(&self, name: &str) -> Result<Arc<Probe>, EngineError> {
        let probes = self.probes.read();
        probes
            .get(name)
            .cloned()
            .ok_or_else(|| EngineError::NotFound {
                name: name.to_owned(),
                meant: meant(name, probes.keys().map(String::as_str)),
            })
    }

    /// Returns all probes, ordered by name.
    pub fn list(&self) -> Vec<Arc<Probe>> {
        self.probes.read().values().cloned().collect()
    }

    /// Tells whether a probe of the namespace waits to be attached to an interface.
    pub fn is_waiting(&self, namespace: &Namespace) -> bool {
        let waits =
            |probe: &Probe| probe.namespace() == Some(namespace) && probe.shown.lock().is_waiting();
        self.list().iter().any(|probe| waits(probe))
    }

    /// Ends all event streams, and all requests that wait for windows. None of these can begin any
    /// more.
    pub fn end_streams(&self) {
        self.disturbed.send_replace(true);
        for probe in self.list() {
            probe.events().into_iter().for_each(ProbeEvents::end);
        }
    }
}
