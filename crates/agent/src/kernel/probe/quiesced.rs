//! The guard of a finished flip: the only way to the maps of the twin that was left.

use std::path::PathBuf;
use std::time::Duration;

use super::Attached;
use crate::crash;
use crate::kernel::clock::Moment;
use crate::kernel::map::MetricMap;
use crate::kernel::twin_maps::TwinMap;

/// The twin of an epoch that has ended, which no CPU runs any more.
#[derive(Debug)]
pub struct Quiesced<'a> {
    pub(super) probe: &'a mut Attached,
    pub(super) epoch: u64,
    pub(super) quiesced: Duration,
}

impl Quiesced<'_> {
    /// The epoch that ended; its number is the window's.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How long the grace period took.
    pub const fn quiesced(&self) -> Duration {
        self.quiesced
    }

    /// The map of a metric: the twin's own if it has one, else the one that packets still change. `None` for events.
    pub fn map(&self, (direction, metric): (usize, usize)) -> Option<&MetricMap> {
        match self.probe.map(direction, metric) {
            TwinMap::Private(maps) => Some(&maps[(self.epoch & 1) as usize]),
            TwinMap::Shared(map) => Some(&**map),
            TwinMap::Events(_) => None,
        }
    }

    /// The journal of a metric: where the rows that were taken out of its map wait until the window is stored.
    pub fn journal(&self, (direction, metric): (usize, usize)) -> PathBuf {
        let direction = self.probe.directions[direction].hook.direction();
        self.probe.pins.journal(direction, metric)
    }

    /// The window is stored: its maps are about to be emptied.
    pub fn begin_clearing(&self) {
        self.probe.epoch.set_clearing(self.epoch);
    }

    /// Whether an attempt to empty the maps has begun: they may lack what the window consists of.
    pub fn is_clearing(&self) -> bool {
        self.probe.epoch.is_clearing(self.epoch)
    }

    /// The twin has been read and reset: the next flip may make it active again. The open window began at `opened`.
    pub fn finish(self, opened: Moment) {
        crash::point("cleared");
        // First: a crash in between clears again, which changes nothing.
        self.probe.epoch.set_opened(opened);
        self.probe.epoch.set_cleared(self.epoch);
        self.probe.quiesced = None;
    }
}
