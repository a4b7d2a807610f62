//! A metric as the formats see it.

use std::ops::Deref;

use twinprobe_ebpf_common::MetricHead;

use crate::cache::Cache;

/// The description of a metric, and what the formats have computed from it. It reads like its description.
#[derive(Clone, Debug)]
pub struct Metric {
    head: MetricHead,
    cache: Cache,
}

impl Metric {
    /// The values that the formats compute for the metric when they first need them.
    pub(crate) const fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Makes a metric that differs in its description.
    pub fn with(mut self, change: impl FnOnce(&mut MetricHead)) -> Self {
        change(&mut self.head);
        Self::from(self.head)
    }
}

impl From<MetricHead> for Metric {
    fn from(head: MetricHead) -> Self {
        Self { head, cache: Cache::default() }
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
        MetricHead::new(direction, name, "", std::sync::Arc::new(layout)).into()
    }
}
