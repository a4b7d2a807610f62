//! The insertions that did not fit into maps, as the documents of windows count them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A document without its entries, of which there may be many.
#[derive(Deserialize)]
struct LossDocument {
    #[serde(default)]
    ingress: BTreeMap<String, MetricLosses>,
    #[serde(default)]
    egress: BTreeMap<String, MetricLosses>,
}

#[derive(Deserialize)]
struct MetricLosses {
    #[serde(default)]
    failed_inserts: u64,
}

/// Returns the insertions into full maps that the document of a window counts, over all metrics.
pub fn failed_inserts(document: &[u8]) -> Option<u64> {
    let document: LossDocument = serde_json::from_slice(document).ok()?;
    let metrics = document.ingress.values().chain(document.egress.values());
    Some(
        metrics
            .map(|metric| metric.failed_inserts)
            .fold(0, u64::saturating_add),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insertions_are_counted_over_all_metrics() {
        let document = br#"{"probe": "p", "window": {"seq": 1},
            "ingress": {"a": {"map": "m", "failed_inserts": 3, "entries": [{"key": 1, "value": 2}]}, "b": {"entries": []}},
            "egress": {"a": {"failed_inserts": 4, "entries": []}}}"#;
        assert_eq!(failed_inserts(document), Some(7));
        assert_eq!(failed_inserts(b"{}"), Some(0));
        assert_eq!(failed_inserts(b"<metrics/>"), None);
    }
}
