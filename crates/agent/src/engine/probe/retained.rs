//! The windows of a probe, which outlive the end of its lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use twinprobe_ebpf_common::DocumentOrigin;
use twinprobe_windows::Windows;

use crate::engine::probe::lease::Lease;

/// The windows of a probe that may have been removed.
#[derive(Clone, Debug)]
pub struct RetainedWindows {
    pub windows: Arc<Windows>,
    pub origin: Arc<DocumentOrigin>,
    /// The number of values that OpenMetrics answers have left out so far.
    pub skipped: Arc<AtomicU64>,
}

impl RetainedWindows {
    /// Tells whether there are windows without an acknowledgement.
    pub fn is_needed(&self) -> bool {
        self.windows.statistics().retained > 0
    }
}

/// The windows of probes whose leases have ended. Each is kept until the end of a second lease.
#[derive(Debug, Default)]
pub struct Expired(Mutex<BTreeMap<String, (RetainedWindows, Lease)>>);

impl Expired {
    pub fn get(&self, name: &str) -> Option<(RetainedWindows, Lease)> {
        self.0.lock().get(name).cloned()
    }

    /// Tells whether the windows are still kept for this lease.
    pub fn is(&self, name: &str, lease: Lease) -> bool {
        self.0
            .lock()
            .get(name)
            .is_some_and(|(_, known)| *known == lease)
    }

    pub fn insert(&self, name: &str, retained: RetainedWindows, lease: Lease) {
        self.0.lock().insert(name.to_owned(), (retained, lease));
    }

    /// Removes the windows of a name. Returns false if the name had none.
    pub fn remove(&self, name: &str) -> bool {
        self.0.lock().remove(name).is_some()
    }
}
