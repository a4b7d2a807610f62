//! Readings that close no window: maps from which a reading takes nothing and, for a probe with an interval, the last
//! closed window.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use twinprobe_windows::{StoredMetric, WindowReader};

use crate::engine::probe::metric::MetricState;
use crate::engine::probe::running::Running;
use crate::engine::window::delivery::{Delivery, Part, Rows};
use crate::engine::window::live::LiveMap;

impl Running {
    /// Returns a reading that closes no window: the last closed window, if there is one, and the metrics that belong to
    /// no window.
    pub fn compose(&self) -> Delivery {
        // Retained windows of an earlier configuration are not part of a reading if this configuration has no windows.
        let newest = self.windows.newest().filter(|_| self.has_windows());
        let last = newest.and_then(|stored| stored.open().ok());
        let last = last.filter(|last| self.is_own(last.head.origin.as_deref())).map(Arc::new);
        self.refresh_exactness();
        let shown = self.readers.iter().filter(|reader| reader.is_shown());
        Delivery {
            probe: self.config.name.clone(),
            origin: Some(Arc::clone(&self.origin)),
            interfaces: self.interfaces(),
            approximate: self.exactness.text(&self.attached.places),
            window: last.as_ref().map(|window| window.head.window.clone()),
            context: Arc::new(self.context()),
            format: self.config.format,
            parts: shown.map(|reader| self.part(reader, last.as_ref())).collect(),
            skipped_before: self.skipped.load(Ordering::Relaxed),
            skipped: Arc::clone(&self.skipped),
            taken: None,
            _claim: None,
            replay: None,
        }
    }

    fn part(&self, reader: &MetricState, last: Option<&Arc<WindowReader>>) -> Part {
        let (direction, metric) = (reader.direction, Arc::clone(&reader.metric));
        if !reader.extraction.resets() {
            let live = |map| Rows::Live(LiveMap { map: Arc::clone(map), gone: self.gone.subscribe() });
            let map = self.attached.live_map(reader.position.0, reader.position.1);
            let rows = map.map_or(Rows::None, live);
            return Part { direction, metric: self.with_losses(reader), rows };
        }
        let stored = last.and_then(|window| {
            let is_it = |stored: &StoredMetric| stored.direction == direction && stored.name == metric.name;
            Some(Part::stored(window, window.head.metrics.iter().position(is_it)?))
        });
        // No window may have been closed since the metric was configured.
        stored.unwrap_or(Part { direction, metric, rows: Rows::None })
    }
}
