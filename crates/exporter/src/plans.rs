//! What is worked out once per metric, however often it is encoded.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use twinprobe_ebpf_common::TableLayout;

use crate::{
    Metric, aggregate,
    decode::Plan,
    encode::{JsonLabel, Samples, XmlLabel},
    leaf::Leaves,
};

/// Filled by the encoders. A copy starts empty, since what it belongs to may then change.
#[derive(Default)]
pub struct Plans {
    pub(crate) json: OnceLock<Arc<Tables<JsonLabel>>>,
    pub(crate) xml: OnceLock<Arc<Tables<XmlLabel>>>,
    pub(crate) samples: OnceLock<Arc<Samples>>,
    /// The metric with the maps in its map as one table.
    pub(crate) flat: OnceLock<Arc<Metric>>,
    leaves: OnceLock<Arc<Leaves<()>>>,
}

/// How a format decodes the rows of a map.
#[derive(Debug)]
pub(crate) struct Tables<L> {
    /// None where the map has no keys.
    pub key: Option<Plan<L>>,
    pub value: Plan<L>,
    /// Of the maps in a map of maps.
    pub inner: Option<Arc<Self>>,
}

impl<L> Tables<L> {
    pub fn new(layout: &TableLayout, label: fn(&str) -> L) -> Self {
        let key = layout.kind.has_keys().then(|| Plan::new(&layout.key, label));
        let inner = layout.inner.as_ref().map(|inner| Arc::new(Self::new(inner, label)));
        Self { key, value: Plan::new(&layout.value, label), inner }
    }
}

impl Plans {
    /// The numbers that an aggregation computes with.
    pub(crate) fn leaves(&self, layout: &TableLayout) -> Arc<Leaves<()>> {
        Arc::clone(self.leaves.get_or_init(|| Arc::new(aggregate::leaves(layout))))
    }
}

impl Clone for Plans {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plans").finish_non_exhaustive()
    }
}
