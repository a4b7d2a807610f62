//! The description of a metric in a document, beside its values.

use std::num::NonZeroU32;
use std::sync::Arc;

use twinprobe_ebpf_common::{Aggregation, TableLayout, Temporality};

use crate::cache::Cache;

/// The properties of a metric that are constant while its probe is deployed.
#[derive(Clone, Debug)]
pub struct Metric {
    /// The name of the metric in documents.
    pub name: String,
    /// The name of the map, or of the variable, in the source.
    pub map: String,
    /// The operator's description of the metric; may be empty.
    pub help: String,
    /// The aggregation of the values of the CPUs, of which only PERCPU maps have several; `None` if they are shown one
    /// by one.
    pub agg: Option<Aggregation>,
    /// The program has seen one packet in this many, chosen at random; `None` if it has seen all.
    pub sample: Option<NonZeroU32>,
    /// The kind of the map and the types of its keys and values.
    pub layout: Arc<TableLayout>,
    /// The start from which the numbers count.
    pub temporality: Temporality,
    /// The number of entries that the sum of the windows has dropped so far for lack of room.
    pub dropped: u64,
    /// The values that the formats compute for the metric when they first need them; starts with the default.
    pub cache: Cache,
}

#[cfg(test)]
impl Metric {
    /// Makes a metric of this layout with defaults for all other properties.
    pub fn example(name: &str, layout: TableLayout) -> Self {
        let (name, map, help) = (name.to_owned(), String::new(), String::new());
        let (layout, temporality, cache) = (Arc::new(layout), Temporality::default(), Cache::default());
        Self { name, map, help, agg: None, sample: None, layout, temporality, dropped: 0, cache }
    }
}
