//! A metric as the formats see it.

use std::ops::Deref;
use std::sync::Arc;

use twinprobe_ebpf_common::MetricHead;

use crate::cache::Cache;
use crate::others::Others;

/// The description of a metric, and the data that the formats have computed from it. The fields of
/// the description are accessible directly.
#[derive(Clone, Debug)]
pub struct Metric {
    head: MetricHead,
    cache: Cache,
    /// The entries that the document leaves out; `None` if it leaves none out.
    others: Option<Arc<Others>>,
}

impl Metric {
    /// Returns the values that the formats have computed for the metric, each at its first use.
    pub(crate) const fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the entries that the document leaves out; `None` if it leaves none out.
    pub fn others(&self) -> Option<&Others> {
        self.others.as_deref()
    }

    pub(crate) fn with_others(mut self, others: Option<Others>) -> Self {
        self.others = others.map(Arc::new);
        self
    }

    /// Makes a metric whose description is changed by `change`.
    pub fn with(mut self, change: impl FnOnce(&mut MetricHead)) -> Self {
        change(&mut self.head);
        Self::from(self.head)
    }
}

impl From<MetricHead> for Metric {
    fn from(head: MetricHead) -> Self {
        Self {
            head,
            cache: Cache::default(),
            others: None,
        }
    }
}

impl Deref for Metric {
    type Target = MetricHead;

    fn deref(&self) -> &MetricHead {
        &self.head
    }
}

#[cfg(test)]
impl Metric {
    /// Makes a metric of this layout with defaults for all other properties.
    pub fn example(name: &str, layout: twinprobe_ebpf_common::TableLayout) -> Self {
        let direction = twinprobe_ebpf_common::Direction::Ingress;
        MetricHead::new(direction, name, "", Arc::new(layout)).into()
    }
}
