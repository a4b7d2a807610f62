//! The requests of a configuration: the hook of a direction's program, and the metrics.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::finding::Finding;
use crate::hook::{Hook, Position, Verdict, XdpMode};
use crate::metric::{Counting, MapCopy, OnReplace, StrategyChoice, Visibility};
use crate::{Aggregation, MergeRules};

/// The hook of a direction's program, and the place of the program at that hook.
#[derive(Clone, Copy, Debug)]
pub struct AttachRequest {
    pub hook: Hook,
    pub xdp_mode: XdpMode,
    pub verdict: Verdict,
    /// The program sees one packet in this many, chosen at random; `None` if it sees all.
    pub sample: Option<NonZeroU32>,
    /// The priority: the probes of one hook run in ascending order of it.
    pub priority: i16,
    pub position: Position,
}

impl AttachRequest {
    /// Returns all parts of the request, with the name of the hook, because hooks can't be
    /// compared.
    fn parts(self) -> impl Eq {
        let Self {
            hook,
            xdp_mode,
            verdict,
            sample,
            priority,
            position,
        } = self;
        (hook.name(), xdp_mode, verdict, sample, priority, position)
    }
}

impl PartialEq for AttachRequest {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for AttachRequest {}

/// An initial entry of a map; key and value have the form of documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapEntry {
    pub key: Value,
    pub value: Value,
}

/// The initial entries of maps, by the name of the map.
pub type Fills = BTreeMap<String, Vec<MapEntry>>;

/// The request for one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRequest {
    /// The path of the metric in the configuration, for findings.
    pub field: String,
    pub name: String,
    /// The symbol of a map in the source, or `.bss:VAR` for a variable of a section.
    pub map: String,
    pub counting: Counting,
    pub visibility: Visibility,
    pub aggregation: Option<Aggregation>,
    pub strategy: StrategyChoice,
    pub on_replace: OnReplace,
    /// The C name of the type of events.
    pub event_type: Option<String>,
}

impl MetricRequest {
    /// Returns the name of the map; for a variable, the name of its section.
    pub fn map_name(&self) -> &str {
        self.map
            .split_once(':')
            .map_or(&self.map, |(section, _)| section)
    }

    /// Tells whether a reading reads the map of the idle twin.
    pub const fn is_snapshot(&self) -> bool {
        matches!(
            self.counting,
            Counting::Window(MapCopy::Snapshot) | Counting::Sum(_)
        )
    }

    /// Tells whether the counts begin again after each reading.
    pub const fn is_reset(&self) -> bool {
        matches!(self.counting, Counting::Window(_))
    }

    /// Returns the rules by which windows add up; `None` if they do not add up.
    pub const fn rules(&self) -> Option<&MergeRules> {
        match &self.counting {
            Counting::Sum(rules) => Some(rules),
            Counting::Window(_) | Counting::Live => None,
        }
    }

    /// Returns the field of the configuration that makes the daemon write to the map: `init` resets
    /// the map, and a snapshot is cleared before its next use. `None` if the daemon only reads the
    /// map.
    pub const fn writing_field(&self) -> Option<&'static str> {
        match self.counting {
            Counting::Window(_) => Some("init"),
            Counting::Sum(_) => Some("snapshot"),
            Counting::Live => None,
        }
    }

    /// Makes the finding about a mistake in one field of the metric.
    pub fn finding(&self, field: &str, message: impl Into<String>) -> Finding {
        Finding::config(format!("{}.{field}", self.field), message)
    }
}
