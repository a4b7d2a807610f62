//! The open window of a probe that runs.

use std::sync::Arc;

use parking_lot::Mutex;
use twinprobe_api::{RevisionWindows, SumStatus};
use twinprobe_kernel::Attached;
use twinprobe_kernel::clock::Moment;
use twinprobe_windows::Windows;

use crate::engine::deploy::lineage::EarlierSerial;
use crate::engine::reading::metric::MetricState;

/// The window in which packets are counted now: its twins, the rows that are kept outside of their
/// maps, and the store of closed windows.
#[derive(Debug)]
pub struct OpenWindow {
    pub attached: Attached,
    pub metrics: Vec<MetricState>,
    /// The start of the window.
    pub opened: Moment,
    /// The deployment whose base could not be read so far. No window is closed before the base is
    /// read.
    pub awaited: Option<EarlierSerial>,
    pub windows: Arc<Windows>,
    /// The status of the sums, which can be read without waiting for a reading.
    pub sums: Arc<Mutex<Vec<SumStatus>>>,
    /// The windows of this deployment, which can be counted without waiting for a reading.
    pub revision: Arc<Mutex<RevisionWindows>>,
    /// True if the open window began with an earlier configuration.
    pub is_inherited: bool,
}

impl OpenWindow {
    pub fn new(
        attached: Attached,
        metrics: Vec<MetricState>,
        awaited: Option<EarlierSerial>,
        windows: Arc<Windows>,
    ) -> Self {
        let opened = attached.epoch.opened();
        let (sums, revision) = Default::default();
        let open = Self {
            attached,
            metrics,
            opened,
            awaited,
            windows,
            sums,
            revision,
            is_inherited: false,
        };
        open.show_sums();
        open
    }

    pub fn show_sums(&self) {
        let sums = self
            .metrics
            .iter()
            .filter_map(MetricState::sum_status)
            .collect();
        *self.sums.lock() = sums;
    }

    /// Counts a window that has ended, and the insertions that failed in it.
    pub fn count(&mut self, failed_inserts: u64) {
        if !std::mem::take(&mut self.is_inherited) {
            let mut revision = self.revision.lock();
            revision.closed += 1;
            revision.failed_inserts = revision.failed_inserts.saturating_add(failed_inserts);
        }
    }

    /// Tells whether a reading of the probe closes windows: true if it resets the map of any
    /// metric.
    pub fn resets(&self) -> bool {
        let mut metrics = self
            .attached
            .directions
            .iter()
            .flat_map(|loaded| &loaded.plan.metrics);
        metrics.any(|metric| metric.extraction.resets())
    }
}
