//! The sum of a metric over its windows.

use std::sync::Arc;

use twinprobe_ebpf_common::{MapFamily, TableLayout};
use twinprobe_exporter::Accumulator;

use twinprobe_config::MetricConfig;

/// The sum of all windows so far.
#[derive(Debug)]
pub struct Sum {
    pub rows: Accumulator,
    /// The last window in the sum.
    pub through: u64,
    /// The number of entries that the sum may have, if entries come and go with the traffic.
    pub max_entries: Option<usize>,
    /// The number of entries dropped so far for lack of room.
    pub dropped: u64,
    /// The number of entries that the map had in the last window.
    pub used: u64,
}

impl Sum {
    pub fn drop_surplus(&mut self) {
        let dropped = self.max_entries.map_or(0, |entries| self.rows.bound(entries));
        self.dropped += dropped as u64;
    }
}

/// Creates an empty sum if the metric has one. The error names the field that does not fit.
pub fn sum(
    metric: &MetricConfig,
    entries: usize,
    layout: &Arc<TableLayout>,
) -> Result<Option<Sum>, (&'static str, String)> {
    // Rows popped from a queue are events, which do not add up: each event is shown once.
    let Some(rules) = metric.request.merge.as_ref().filter(|_| layout.kind.family() != MapFamily::Fifo)
    else {
        return Ok(None);
    };
    let rows = Accumulator::new(Arc::clone(layout), rules).map_err(|error| ("merge", error.to_string()))?;
    let map_entries = rows.has_ages().then_some(entries);
    let max_entries = match (map_entries, metric.sum_entries) {
        (None, Some(_)) => {
            let (name, kind) = (&metric.request.map, layout.kind.name());
            let message = format!(
                "the sums of {name} have as many entries as it has, since it is of type {kind}; leave sum_entries out"
            );
            return Err(("sum_entries", message));
        }
        (Some(least), Some(entries)) if entries < least => {
            let name = &metric.request.map;
            let message =
                format!("one window of map {name} can have {least} entries; at least as many are needed");
            return Err(("sum_entries", message));
        }
        (map_entries, entries) => entries.or(map_entries.map(|entries| entries.saturating_mul(SUM_ENTRIES))),
    };
    Ok(Some(Sum { rows, through: 0, max_entries, dropped: 0, used: 0 }))
}

/// The default limit of a sum's entries, as a multiple of the entries of the metric's map.
pub const SUM_ENTRIES: usize = 8;
