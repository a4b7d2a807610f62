//! The parts of a document beside its entries, and the numbers of these.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::window::shape::MetricShape;

use super::entries::{EntryValues, each_entry};
use crate::receiver::{SendError, StreamWindow};

/// A document without its entries, which would take many times their size as a tree of values.
#[derive(Debug, Deserialize)]
pub struct DocumentHead {
    #[serde(default)]
    pub window: Value,
    #[serde(default)]
    pub interfaces: Value,
    #[serde(default)]
    pub labels: Value,
    pub approximate: Option<String>,
    #[serde(default)]
    ingress: HashMap<String, EntryTally>,
    #[serde(default)]
    egress: HashMap<String, EntryTally>,
}

/// A metric with the number of its entries.
#[derive(Debug, Deserialize)]
struct EntryTally {
    #[serde(default, deserialize_with = "tally")]
    entries: usize,
}

impl DocumentHead {
    pub fn of(window: &StreamWindow) -> Result<Self, SendError> {
        serde_json::from_slice(&window.document).map_err(|error| window.malformed(&error))
    }

    /// Tells whether the document has entries of a metric.
    pub fn has_entries(&self, metric: &MetricShape) -> bool {
        let metrics = match metric.direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        };
        metrics
            .get(&metric.name)
            .is_some_and(|tally| tally.entries > 0)
    }
}

/// Calls a function with each entry that a window has of a metric.
pub fn entries_of(
    window: &StreamWindow,
    metric: &MetricShape,
    each: impl FnMut(&Value),
) -> Result<(), SendError> {
    let path = [metric.direction.name(), &metric.name];
    each_entry(&window.document, path, &mut EntryValues(each))
        .map_err(|error| window.malformed(&error))
}

fn tally<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    struct TallyVisitor;

    impl<'de> Visitor<'de> for TallyVisitor {
        type Value = usize;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<usize, A::Error> {
            let mut count = 0;
            while entries.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            Ok(count)
        }

        fn visit_unit<E>(self) -> Result<usize, E> {
            Ok(0)
        }
    }

    deserializer.deserialize_any(TallyVisitor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_counted_and_not_kept() {
        let document = json!({
            "probe": "p", "interfaces": ["lo"], "window": { "seq": 3 },
            "egress": {
                "flows": { "entries": [{ "key": 1, "value": { "entries": [1, 2] } }], "left": {} },
                "sizes": { "entries": [] }, "none": { "entries": null }, "bare": {},
            },
        });
        let head: DocumentHead = serde_json::from_str(&document.to_string()).unwrap();
        assert_eq!(
            (&head.interfaces, &head.window["seq"]),
            (&json!(["lo"]), &json!(3))
        );
        assert!(head.labels.is_null() && head.approximate.is_none());
        let metric = |direction: &str, name: &str| -> MetricShape {
            serde_json::from_value(json!({
                "direction": direction, "name": name, "map": "m", "type": "hash", "reading": "window",
                "value": { "type": "unsigned", "bits": 64 },
            }))
            .unwrap()
        };
        for (direction, name, expected) in [
            ("egress", "flows", true),
            ("egress", "sizes", false),
            ("egress", "none", false),
            ("egress", "bare", false),
            ("ingress", "flows", false),
        ] {
            assert_eq!(
                head.has_entries(&metric(direction, name)),
                expected,
                "{direction} {name}"
            );
        }
    }
}
