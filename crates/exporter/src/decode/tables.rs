//! The plans by which a format writes the rows of a map.

use std::sync::Arc;

use twinprobe_ebpf_common::TableLayout;

use super::plan::Plan;
use super::sink::ValueSink;

/// The plans by which the format `S` decodes the rows of a map.
pub struct Tables<S: ValueSink> {
    /// The plan of the keys; `None` if the map has no keys.
    pub key: Option<Plan<S::Label>>,
    pub value: Plan<S::Label>,
    /// The same for the inner maps of a map of maps.
    pub inner: Option<Arc<Self>>,
}

impl<S: ValueSink> Tables<S> {
    pub fn new(layout: &TableLayout) -> Self {
        let key = layout.kind.has_keys().then(|| Plan::new(&layout.key, S::label));
        let inner = layout.inner.as_ref().map(|inner| Arc::new(Self::new(inner)));
        Self { key, value: Plan::new(&layout.value, S::label), inner }
    }
}
