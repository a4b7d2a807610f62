//! What a metrics document is made of. Values stay raw bytes until they are encoded.

use std::{collections::HashMap, sync::Arc};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// The time between two flips; `start` and `end` are RFC 3339.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub seq: u64,
    pub start: String,
    pub end: String,
    /// From the flip until no program was left in the idle twin.
    pub quiesce_us: u64,
}

/// What the numbers of a metric count from. Only OpenMetrics says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Nanoseconds from the Unix epoch to the boot of the machine; what `ktime` counts from.
    pub boot_time_ns: i128,
    /// Names by index, for `ifindex`.
    pub interfaces: HashMap<u32, String>,
}
