//! What a metrics document is made of. Values stay raw bytes until they are encoded.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::{RawTable, TableLayout};

use crate::{Aggregation, Plans};

/// One answer about one probe.
#[derive(Clone, Debug, Default)]
pub struct Document {
    pub probe: String,
    pub interfaces: Vec<String>,
    /// The window the snapshot metrics belong to, if one was closed.
    pub window: Option<Window>,
    pub ingress: Vec<MetricTable>,
    pub egress: Vec<MetricTable>,
}

impl Document {
    pub fn head(&self) -> Head<'_> {
        Head { probe: &self.probe, interfaces: &self.interfaces, window: self.window.as_ref() }
    }

    /// The metrics of both directions, in the order of the document.
    pub fn tables(&self) -> impl Iterator<Item = (Direction, &MetricTable)> {
        let ingress = self.ingress.iter().map(|table| (Direction::Ingress, table));
        ingress.chain(self.egress.iter().map(|table| (Direction::Egress, table)))
    }
}

/// What a document says before its first metric.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    pub probe: &'a str,
    pub interfaces: &'a [String],
    pub window: Option<&'a Window>,
}

/// Which way the packets go that a metric is about; in the order of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// The time between two flips; `start` and `end` are RFC 3339, by the wall clock. If the clock was set back behind the
/// start, `start` is by the clock as it was at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub seq: u64,
    pub start: String,
    pub end: String,
    /// The time that has really passed, whatever was done to the wall clock. Windows of earlier versions lack it.
    #[serde(default)]
    pub duration_ns: Option<u64>,
    /// The step by which the wall clock was set in between: forward, or back if negative.
    #[serde(default)]
    pub clock_step_ns: Option<i64>,
    /// From the flip until no program was left in the idle twin.
    pub quiesce_us: u64,
    /// Windows that went without having been acknowledged, and that no window before has reported.
    pub lost_windows: u64,
}

/// What the numbers of a metric count from. Only OpenMetrics says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// From the last reset: each reading starts at zero again.
    #[default]
    Window,
    /// From the deployment of the probe: windows are added up.
    Cumulative,
    /// The map as it is; nobody but the program resets it.
    Live,
}

/// What is constant about a metric while its probe is deployed.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: String,
    pub map: String,
    pub help: String,
    /// How the values of the CPUs become one; only PERCPU maps have several.
    pub agg: Option<Aggregation>,
    pub layout: Arc<TableLayout>,
    pub reading: Reading,
    /// The number of entries that the sum of the windows has dropped so far for lack of room.
    pub dropped: u64,
    /// Filled when they are first needed; start with the default.
    pub plans: Plans,
}

/// A metric and one reading of its map.
#[derive(Clone, Debug)]
pub struct MetricTable {
    pub metric: Arc<Metric>,
    pub table: RawTable,
}

/// What renderings need to know about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Nanoseconds from the Unix epoch to the boot of the machine; what `ktime` counts from.
    pub boot_time_ns: i128,
    /// Names by index, for `ifindex`.
    pub interfaces: HashMap<u32, String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn what_is_stored_has_the_names_of_documents() {
        for direction in Direction::ALL {
            assert_eq!(serde_json::to_value(direction).unwrap(), direction.name());
        }
        for aggregation in Aggregation::ALL {
            assert_eq!(serde_json::to_value(aggregation).unwrap(), aggregation.name());
        }
        for format in Format::ALL {
            assert_eq!(serde_json::to_value(format).unwrap(), format.name());
        }
    }

    #[test]
    fn what_renderings_need_is_stored_to_the_last_bit() {
        let interfaces = HashMap::from([(1, "lo".to_owned()), (u32::MAX, "\u{1f980}".to_owned())]);
        for boot_time_ns in [0, 1_760_000_000_123_456_789, i128::from(u64::MAX) + 1, i128::MIN] {
            let context = Context { boot_time_ns, interfaces: interfaces.clone() };
            let stored = serde_json::to_vec(&context).unwrap();
            assert_eq!(serde_json::from_slice::<Context>(&stored).unwrap(), context);
        }
    }
}
