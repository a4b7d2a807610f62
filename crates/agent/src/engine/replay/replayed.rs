//! A replay whose window is delivered.

use std::time::Duration;

use tokio::sync::watch;
use twinprobe_ebpf_common::Replayed;
use twinprobe_kernel::ReplayLane;

use crate::limits::ledger::Share;

/// A replay whose window a client is receiving. The maps exist until the client has their content.
#[derive(Debug)]
pub struct RunningReplay {
    pub replayed: Replayed,
    /// The time for which the programs have run.
    pub ran: Duration,
    _lanes: Vec<ReplayLane>,
    _share: Share,
    /// A channel that shows readers of the maps that the maps still exist.
    _present: watch::Sender<()>,
}

impl RunningReplay {
    pub fn new(
        replayed: Replayed,
        lanes: Vec<ReplayLane>,
        share: Share,
        present: watch::Sender<()>,
    ) -> Self {
        let ran = lanes.iter().map(|lane| lane.counts.ran).sum();
        Self {
            replayed,
            ran,
            _lanes: lanes,
            _share: share,
            _present: present,
        }
    }
}
