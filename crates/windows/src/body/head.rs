//! The head of a window file, which comes before the rows.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::window::is_default;
use twinprobe_ebpf_common::{Completeness, Context, DocumentOrigin, Format, MetricHead, Window};

use crate::body::format::FileHead;

/// Everything that rendering a window needs, so that the window gives the same bytes forever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowHead {
    pub probe: String,
    /// The origin of the numbers; `None` if a version that did not record it has stored the window.
    #[serde(default)]
    pub origin: Option<Arc<DocumentOrigin>>,
    pub interfaces: Vec<String>,
    /// The reasons why the numbers are not those of the wire; `None` without such a reason, and for
    /// windows of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approximate: Option<String>,
    /// The window; its number is in the file's name.
    pub window: Window,
    /// The format that the probe's configuration prefers.
    pub format: Format,
    pub context: Context,
    /// The number of values that earlier OpenMetrics answers about the probe left out, because they
    /// can not be samples.
    pub skipped_before: u64,
    pub closed_by: ClosedBy,
    /// The metrics, in the order of the document. Rows name their metric by its place in this list.
    pub metrics: Vec<MetricHead>,
    /// The sums that no document shows. Their places follow the places of `metrics`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<MetricHead>,
    /// Marks a window that holds the changes in its sums; `None` if it holds whole sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<SumChanges>,
}

/// The sums of a window that holds only the changes since another window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumChanges {
    /// The number of the previous window, with which the changes begin.
    pub since: u64,
    /// The places of the metrics whose rows are changes.
    pub places: Vec<usize>,
    /// The places of the metrics that the window with whole sums describes completely, with the
    /// same numbers; only the head in a body has such places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alike: Vec<usize>,
    /// The metrics that the window with whole sums describes, except for these numbers; only the
    /// head in a body has such metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub described: Vec<DescribedMetric>,
}

/// A metric with the description that it has in the window with whole sums, at the same place, and
/// with numbers of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedMetric {
    pub place: usize,
    #[serde(default, skip_serializing_if = "is_default")]
    pub dropped: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub completeness: Completeness,
}

impl SumChanges {
    pub const fn new(since: u64, places: Vec<usize>) -> Self {
        Self {
            since,
            places,
            alike: Vec::new(),
            described: Vec::new(),
        }
    }
}

impl WindowHead {
    /// Returns every metric that has rows, in the order of the places.
    pub fn all(&self) -> impl Iterator<Item = &MetricHead> {
        self.metrics.iter().chain(&self.hidden)
    }

    /// Returns the number of metrics that the head of the window with whole sums describes for this
    /// head.
    pub fn described(&self) -> usize {
        self.changes
            .as_ref()
            .map_or(0, |changes| changes.alike.len() + changes.described.len())
    }

    /// The place of the ages of a metric's sum.
    pub const fn place_of_ages(&self, metric: usize) -> usize {
        self.metrics.len() + self.hidden.len() + metric
    }

    /// The place of the changes in a metric's sum.
    pub const fn place_of_changes(&self, metric: usize) -> usize {
        2 * (self.metrics.len() + self.hidden.len()) + metric
    }
}

impl FileHead for WindowHead {
    const MAGIC: &'static [u8; 6] = b"tpwind";
    /// Version 1 had no hidden sums and no ages. Version 2 had no origin, no samples, and one
    /// metric for each map. Version 3 had no times by the wall clock, version 4 no sums of 128
    /// bits, version 5 no changes of sums, version 6 all metrics in each head, version 7 all their
    /// numbers. A window with whole sums is still written as version 5.
    const VERSION: u8 = 8;

    fn version(&self) -> u8 {
        match &self.changes {
            None => 5,
            Some(changes) if !changes.alike.is_empty() => Self::VERSION,
            Some(changes) if !changes.described.is_empty() => 7,
            Some(_) => 6,
        }
    }

    fn tables(&self) -> usize {
        // The places of the rows, of the ages and of the changes of each metric.
        let all = self.metrics.len() + self.hidden.len() + self.described();
        if self.changes.is_some() {
            3 * all
        } else {
            2 * all
        }
    }
}

/// The cause that closed a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    /// A client that reads the metrics. Unless this client takes all of the window, the next client
    /// gets it.
    Read,
    /// A client that asked only for the end of the window.
    Request,
    /// The probe's interval is over.
    Schedule,
    /// A page about all probes, which needs the sums in the window. Other readers do not need the
    /// window, so the next window replaces it. On disk it looks like a window for a client.
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
