//! What a document says about a metric beside its values.

use std::sync::Arc;

use twinprobe_ebpf_common::{Aggregation, TableLayout, Temporality};

use crate::cache::Cache;

/// What is constant about a metric while its probe is deployed.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Its name in documents.
    pub name: String,
    /// The name of the map, or of the variable, in the source.
    pub map: String,
    /// What the operator says about it; may be empty.
    pub help: String,
    /// How the values of the CPUs become one; only PERCPU maps have several. `None`: they are shown one by one.
    pub agg: Option<Aggregation>,
    /// The kind of the map and what its keys and values mean.
    pub layout: Arc<TableLayout>,
    /// What the numbers count from.
    pub temporality: Temporality,
    /// The number of entries that the sum of the windows has dropped so far for lack of room.
    pub dropped: u64,
    /// What the formats work out about the metric when they first need it; starts with the default.
    pub cache: Cache,
}

#[cfg(test)]
impl Metric {
    /// A metric of this layout that says nothing else.
    pub fn example(name: &str, layout: TableLayout) -> Self {
        let (name, map, help) = (name.to_owned(), String::new(), String::new());
        let (layout, temporality, cache) = (Arc::new(layout), Temporality::default(), Cache::default());
        Self { name, map, help, agg: None, layout, temporality, dropped: 0, cache }
    }
}
