//! News of windows.

use std::sync::Arc;

use tokio::sync::broadcast;
use twinprobe_ebpf_common::window::WindowEntry;

/// The number of windows that a subscriber may be behind before it misses some.
pub const BEHIND: usize = 1024;

/// A window that is on disk now, and in its probe's list.
#[derive(Debug)]
pub struct Closed {
    pub probe: String,
    pub window: WindowEntry,
}

/// The teller of one probe's windows.
#[derive(Debug)]
pub struct WindowTeller {
    pub probe: String,
    pub closed: broadcast::Sender<Arc<Closed>>,
}

impl WindowTeller {
    pub fn tell(&self, window: &WindowEntry) {
        if self.closed.receiver_count() > 0 {
            // An error says that the last subscriber has left meanwhile.
            let _ = self.closed.send(Arc::new(Closed { probe: self.probe.clone(), window: window.clone() }));
        }
    }
}
