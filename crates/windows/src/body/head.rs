//! The head of a window file, which comes before the rows.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::window::is_default;
use twinprobe_ebpf_common::{
    Aggregation, Completeness, Context, Direction, EventKind, Format, Origin, SeriesRules, TableLayout,
    Temporality, Window,
};

use crate::body::format::FileHead;

/// Everything that rendering a window needs, so that the window gives the same bytes for ever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowHead {
    pub probe: String,
    /// The origin of the numbers; `None` if a version that did not record it has stored the window.
    #[serde(default)]
    pub origin: Option<Arc<Origin>>,
    pub interfaces: Vec<String>,
    /// The reasons why the numbers are not those of the wire; `None` if they are, or if an earlier version has stored the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approximate: Option<String>,
    /// The window; its number is in the file's name.
    pub window: Window,
    /// The format that the probe's configuration prefers.
    pub format: Format,
    pub context: Context,
    /// The number of values that earlier OpenMetrics answers about the probe left out, because they can not be samples.
    pub skipped_before: u64,
    pub closed_by: ClosedBy,
    /// The metrics, in the order of the document. Rows name a metric by its place in this list.
    pub metrics: Vec<StoredMetric>,
    /// The sums that are not shown; their places are after those of `metrics`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<StoredMetric>,
}

impl WindowHead {
    /// Every metric that has rows, in the order of the places.
    pub fn all(&self) -> impl Iterator<Item = &StoredMetric> {
        self.metrics.iter().chain(&self.hidden)
    }

    /// The place of the ages of a metric's sum.
    pub const fn place_of_ages(&self, metric: usize) -> usize {
        self.metrics.len() + self.hidden.len() + metric
    }
}

impl FileHead for WindowHead {
    const MAGIC: &'static [u8; 6] = b"tpwind";
    /// Version 1 had no hidden sums and no ages, version 2 no origin, no samples, and one metric for each map, version 3 no
    /// times by the wall clock.
    const VERSION: u8 = 4;

    fn tables(&self) -> usize {
        self.place_of_ages(self.metrics.len() + self.hidden.len())
    }
}

/// The cause that closed a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    /// A client that reads the metrics. Unless this client takes all of the window, the next client gets it.
    Read,
    /// A client that asked only for the end of the window.
    Request,
    /// The probe's interval is over.
    Schedule,
    /// A page about all probes, for the sums in the window. Nobody else misses the window, so that it goes with the next
    /// one. On disk it is one of those that a client asked for.
    #[serde(skip_deserializing, rename(serialize = "request"))]
    Page,
}

impl ClosedBy {
    pub const ALL: [Self; 4] = [Self::Read, Self::Request, Self::Schedule, Self::Page];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Request => "request",
            Self::Schedule => "schedule",
            Self::Page => "page",
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
    /// The program has seen one packet in this many, chosen at random; `None` if it has seen all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sample: Option<NonZeroU32>,
    pub layout: Arc<TableLayout>,
    pub reading: Temporality,
    /// The number of entries that the sum has dropped so far for lack of room.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dropped: u64,
    /// The kind of a map of events, whose metric has no rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventKind>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub completeness: Completeness,
    /// The way in which OpenMetrics shows the metric. Windows of earlier versions lack it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub series: SeriesRules,
}
