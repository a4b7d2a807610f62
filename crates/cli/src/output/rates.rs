//! Counts as rates, per second.

use std::collections::HashMap;

use serde_json::{Number, Value};
use twinprobe_api::{ConfigDocument, DirectionDocument};

use crate::output::rows::PER_SECOND;

/// Replaces the numbers in a document's values by rates. A metric that is reset with its window has
/// counted for the length of the window. Any other metric has counted the difference to the
/// previous document, `elapsed` seconds ago. Metrics whose rates are unknown yet lose their
/// entries.
pub fn per_second(
    document: &mut Value,
    before: Option<&Value>,
    elapsed: f64,
    config: Option<&ConfigDocument>,
) {
    let window = document["window"]["duration_ns"]
        .as_u64()
        .map(|length| length as f64 / 1e9);
    for direction in ["ingress", "egress"] {
        let configured = config.and_then(|config| match direction {
            "ingress" => config.ingress.as_ref(),
            _ => config.egress.as_ref(),
        });
        let earlier = before.map(|before| &before[direction]);
        for (name, metric) in document[direction].as_object_mut().into_iter().flatten() {
            let Some(metric) = metric.as_object_mut() else {
                continue;
            };
            let is_reset = configured.is_some_and(|configured| is_reset(configured, name));
            let known = match (is_reset, earlier.map(|earlier| &earlier[name.as_str()])) {
                (true, _) => window.map(|seconds| (HashMap::new(), seconds)),
                (false, Some(earlier)) if elapsed > 0.0 => Some((by_key(earlier), elapsed)),
                (false, _) => None,
            };
            let entries = metric.get_mut("entries").and_then(Value::as_array_mut);
            match known {
                Some((before, seconds)) => {
                    for entry in entries.into_iter().flatten() {
                        let key = entry["key"].to_string();
                        rate(&mut entry["value"], before.get(&key).copied(), seconds);
                    }
                }
                None => entries.into_iter().for_each(Vec::clear),
            }
            metric.insert(PER_SECOND.to_owned(), true.into());
        }
    }
}

/// Tells whether a metric begins anew with each window.
fn is_reset(direction: &DirectionDocument, name: &str) -> bool {
    let metrics = direction.metrics.iter().flatten();
    let metric = metrics
        .into_iter()
        .find(|metric| metric.name.as_deref() == Some(name));
    metric.is_some_and(|metric| metric.init == Some(true))
}

fn by_key(metric: &Value) -> HashMap<String, &Value> {
    let entries = metric["entries"].as_array().into_iter().flatten();
    entries
        .map(|entry| (entry["key"].to_string(), &entry["value"]))
        .collect()
}

/// Replaces each number by its growth per second. A number that has become smaller was reset.
fn rate(value: &mut Value, before: Option<&Value>, seconds: f64) {
    match value {
        Value::Number(number) => {
            let now = number.as_f64().unwrap_or_default();
            let then = before
                .and_then(Value::as_f64)
                .filter(|then| *then <= now)
                .unwrap_or_default();
            let rate = (now - then) / seconds;
            *value = Number::from_f64(rate).map_or(Value::Null, Value::Number);
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                rate(item, before.and_then(|before| before.get(i)), seconds);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                rate(field, before.and_then(|before| before.get(name)), seconds);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn windows_count_for_their_length_and_sums_since_the_document_before() {
        let config: ConfigDocument = serde_json::from_value(json!({ "ingress": { "metrics": [
            { "name": "reset", "map": "r", "snapshot": true, "init": true },
            { "name": "sum", "map": "s", "snapshot": true } ] } }))
        .unwrap();
        let document = |reset: u64, sum: u64| {
            json!({ "window": { "duration_ns": 2_000_000_000_u64 }, "ingress": {
                "reset": { "entries": [{ "key": 1, "value": { "packets": reset, "from": "10.0.0.1" } }] },
                "sum": { "entries": [{ "key": 1, "value": [sum, 7] }] } }, "egress": {} })
        };
        let (before, mut first, mut second) =
            (document(8, 100), document(8, 100), document(10, 140));
        per_second(&mut first, None, 0.0, Some(&config));
        assert_eq!(
            first["ingress"]["reset"]["entries"][0]["value"],
            json!({ "packets": 4.0, "from": "10.0.0.1" })
        );
        assert_eq!(first["ingress"]["sum"]["entries"], json!([]));
        per_second(&mut second, Some(&before), 4.0, Some(&config));
        assert_eq!(
            second["ingress"]["reset"]["entries"][0]["value"]["packets"],
            5.0
        );
        assert_eq!(
            second["ingress"]["sum"]["entries"][0]["value"],
            json!([10.0, 0.0])
        );
        assert_eq!(second["ingress"]["sum"][PER_SECOND], true);
    }

    #[test]
    fn a_sum_that_began_anew_counts_from_zero() {
        let document = |sum: u64| json!({ "ingress": { "s": { "entries": [{ "value": sum }] } } });
        let mut now = document(10);
        per_second(&mut now, Some(&document(1000)), 2.0, None);
        assert_eq!(now["ingress"]["s"]["entries"][0]["value"], 5.0);
    }
}
