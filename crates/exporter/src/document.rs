//! What a metrics document is made of. Values stay raw bytes until they are encoded.

use std::sync::Arc;

use twinprobe_ebpf_common::{Aggregation, Direction, Head, RawTable, TableLayout, Temporality, Window};

use crate::plans::Plans;

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

/// What is constant about a metric while its probe is deployed.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: String,
    pub map: String,
    pub help: String,
    /// How the values of the CPUs become one; only PERCPU maps have several.
    pub agg: Option<Aggregation>,
    pub layout: Arc<TableLayout>,
    pub reading: Temporality,
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
