//! Messages about newly listed windows.

use std::sync::Arc;

use tokio::sync::broadcast;
use twinprobe_ebpf_common::window::WindowEntry;

/// The number of messages that a subscriber may be late before it misses some.
pub const BEHIND: usize = 1024;

/// A window that is on disk, and in the list of its probe.
#[derive(Debug)]
pub struct Closed {
    pub probe: String,
    pub window: WindowEntry,
}

/// The sender of the messages about one probe's windows.
#[derive(Debug)]
pub struct WindowTeller {
    pub probe: String,
    pub closed: broadcast::Sender<Arc<Closed>>,
}

impl WindowTeller {
    pub fn tell(&self, window: &WindowEntry) {
        if self.closed.receiver_count() > 0 {
            // An error means that the last subscriber has left.
            let _ = self.closed.send(Arc::new(Closed {
                probe: self.probe.clone(),
                window: window.clone(),
            }));
        }
    }
}
