//! What a metrics document is made of. Values stay raw bytes until they are encoded.

use std::{collections::HashMap, sync::Arc};

use twinprobe_ebpf_common::{RawTable, TableLayout};

use crate::Aggregation;

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

/// The time between two flips; `start` and `end` are RFC 3339.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub seq: u64,
    pub start: String,
    pub end: String,
    /// From the flip until no program was left in the idle twin.
    pub quiesce_us: u64,
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
}

/// A metric and one reading of its map.
#[derive(Clone, Debug)]
pub struct MetricTable {
    pub metric: Arc<Metric>,
    pub table: RawTable,
}

/// What renderings need to know about the machine.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Nanoseconds from the Unix epoch to the boot of the machine; what `ktime` counts from.
    pub boot_time_ns: i128,
    /// Names by index, for `ifindex`.
    pub interfaces: HashMap<u32, String>,
}
