//! What a window file says before its rows.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::TableLayout;
use twinprobe_exporter::{Aggregation, Context, Direction, Format, Metric, Plans, Reading, Window};

/// Everything that rendering a window needs, so that it gives the same bytes for ever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowHead {
    pub probe: String,
    pub interfaces: Vec<String>,
    /// Its number names the file.
    pub window: Window,
    /// What the probe's configuration preferred.
    pub format: Format,
    pub context: Context,
    /// What OpenMetrics answers about the probe had left out before.
    pub skipped_before: u64,
    pub closed_by: ClosedBy,
    /// In the order of the document. Rows name theirs by its place here.
    pub metrics: Vec<StoredMetric>,
}

/// Who had a window closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    /// A client that wanted the metrics. Unless it takes all of it, the window is given to the next one.
    Read,
    /// A client that wanted the window closed.
    Request,
    /// The probe's interval.
    Schedule,
}

impl ClosedBy {
    pub const ALL: [Self; 3] = [Self::Read, Self::Request, Self::Schedule];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Request => "request",
            Self::Schedule => "schedule",
        }
    }
}

/// A metric as it was when the window was closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredMetric {
    pub direction: Direction,
    pub name: String,
    pub map: String,
    pub help: String,
    pub agg: Option<Aggregation>,
    pub layout: Arc<TableLayout>,
    pub reading: Reading,
}

impl StoredMetric {
    pub fn new(direction: Direction, metric: &Metric) -> Self {
        Self {
            direction,
            name: metric.name.clone(),
            map: metric.map.clone(),
            help: metric.help.clone(),
            agg: metric.agg,
            layout: Arc::clone(&metric.layout),
            reading: metric.reading,
        }
    }

    pub fn metric(&self) -> Metric {
        Metric {
            name: self.name.clone(),
            map: self.map.clone(),
            help: self.help.clone(),
            agg: self.agg,
            layout: Arc::clone(&self.layout),
            reading: self.reading,
            plans: Plans::default(),
        }
    }
}
