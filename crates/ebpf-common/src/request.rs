//! What a configuration asks for: the hook of a direction's program, and the metrics.

use std::num::NonZeroU32;

use crate::finding::Finding;
use crate::hook::{Hook, Position, Verdict, XdpMode};
use crate::metric::{AfterRead, OnReplace, Source, StrategyChoice, Visibility};
use crate::{Aggregation, MergeRules};

/// The hook at which a direction's program runs, and the program's place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachRequest {
    pub hook: Hook,
    pub xdp_mode: XdpMode,
    pub verdict: Verdict,
    /// The program sees one packet in this many, chosen at random; `None` if it sees all.
    pub sample: Option<NonZeroU32>,
    /// Probes of one hook run in ascending order.
    pub priority: i16,
    pub position: Position,
}

/// The request for one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRequest {
    /// The path of the metric in the configuration, for findings.
    pub field: String,
    pub name: String,
    /// The symbol of a map in the source, or `.bss:VAR` for a variable of a section.
    pub map: String,
    pub source: Source,
    pub after_read: AfterRead,
    pub visibility: Visibility,
    pub aggregation: Option<Aggregation>,
    /// The rules by which windows add up.
    pub merge: Option<MergeRules>,
    pub strategy: StrategyChoice,
    pub on_replace: OnReplace,
    /// The C name of the type that events are decoded by.
    pub event_type: Option<String>,
}

impl MetricRequest {
    /// Returns the name of the map, or of the section that the variable is in.
    pub fn map_name(&self) -> &str {
        self.map.split_once(':').map_or(&self.map, |(section, _)| section)
    }

    pub fn is_snapshot(&self) -> bool {
        self.source == Source::Snapshot
    }

    pub fn is_reset(&self) -> bool {
        self.after_read == AfterRead::Reset
    }

    /// Returns the field of the configuration that makes the daemon write to the map: `init` resets it, and a snapshot
    /// is cleared before it is used again. `None` if the map is only read.
    pub fn writing_field(&self) -> Option<&'static str> {
        match (self.after_read, self.source) {
            (AfterRead::Reset, _) => Some("init"),
            (AfterRead::Keep, Source::Snapshot) => Some("snapshot"),
            (AfterRead::Keep, Source::Live) => None,
        }
    }

    /// Makes the finding about a mistake in one field of the metric.
    pub fn finding(&self, field: &str, message: impl Into<String>) -> Finding {
        Finding::config(format!("{}.{field}", self.field), message)
    }
}
