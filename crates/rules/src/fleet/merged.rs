//! The windows of many nodes as one window: entries with the same key are added up.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use twinprobe_ebpf_common::field::meaning::Meaning;
use twinprobe_ebpf_common::field::plan::Scalar;
use twinprobe_ebpf_common::metric::distribution::{Distributions, PERCENTILES};
use twinprobe_ebpf_common::{MergeRule, MergeRules};

/// Returns a document with the sums of the windows. The document has the number and the length of
/// the period. The name of a number decides how numbers with this name are merged. A large sum may
/// become a floating-point number, as all numbers do in expressions.
pub fn merged(windows: &[&Value], period: u64, length: Duration) -> Value {
    let lost: u64 = windows
        .iter()
        .filter_map(|window| window["window"]["lost_windows"].as_u64())
        .sum();
    let nanoseconds = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let window = json!({ "seq": period, "duration_ns": nanoseconds, "lost_windows": lost });
    let mut whole = json!({ "window": window });
    if let Some(approximate) = windows.iter().find_map(|window| window.get("approximate")) {
        whole["approximate"] = approximate.clone();
    }
    for direction in ["ingress", "egress"] {
        let mut metrics: Map<String, Value> = Map::new();
        let mut places: HashMap<(&str, String), usize> = HashMap::new();
        for (name, metric) in windows
            .iter()
            .filter_map(|window| window[direction].as_object())
            .flatten()
        {
            let kind = || json!({ "histogram": metric["histogram"] == true, "entries": [] });
            let total = metrics.entry(name.as_str()).or_insert_with(kind);
            let Some(entries) = total["entries"].as_array_mut() else {
                continue;
            };
            for entry in metric["entries"].as_array().into_iter().flatten() {
                match places.get(&(name.as_str(), entry["key"].to_string())) {
                    Some(place) => join(&mut entries[*place]["value"], &entry["value"], "", false),
                    None => {
                        places.insert((name.as_str(), entry["key"].to_string()), entries.len());
                        entries.push(entry.clone());
                    }
                }
            }
        }
        metrics.values_mut().for_each(summarize);
        whole[direction] = Value::Object(metrics);
    }
    whole
}

/// Adds the percentiles of a histogram, which follow from the sums of its slots, as in documents of
/// daemons.
fn summarize(metric: &mut Value) {
    // A count above 2^64 is a float here, which is precise enough.
    let number = |count: &Value| {
        count
            .as_u64()
            .map_or_else(|| count.as_f64().unwrap_or_default() as u128, u128::from)
    };
    let Some(all) = Distributions::of_metric(metric, number) else {
        return;
    };
    for (name, percent) in PERCENTILES {
        if let Some(bound) = all.all().percentile(percent) {
            metric[name] = bound.into();
        }
    }
}

fn join(total: &mut Value, value: &Value, path: &str, is_item: bool) {
    match (&mut *total, value) {
        (Value::Object(fields), Value::Object(news)) => {
            for (name, new) in news {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                match fields.get_mut(name) {
                    Some(field) => join(field, new, &path, false),
                    None => _ = fields.insert(name.clone(), new.clone()),
                }
            }
        }
        (Value::Array(items), Value::Array(news)) => {
            for (index, new) in news.iter().enumerate() {
                match items.get_mut(index) {
                    Some(item) => join(item, new, path, true),
                    None => items.push(new.clone()),
                }
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let kind = a.is_u64().then_some(&Scalar::Unsigned);
            let rule = MergeRules::default()
                .join(path, Meaning::of(kind, path, 64, is_item))
                .rule;
            *total = match (a.as_u64().zip(b.as_u64()), a.as_f64().zip(b.as_f64())) {
                (Some((a, b)), _) => joined(rule, a, b).into(),
                (None, Some((a, b))) => match rule {
                    MergeRule::Sum => (a + b).into(),
                    MergeRule::Max => a.max(b).into(),
                    MergeRule::Min => a.min(b).into(),
                    MergeRule::Or | MergeRule::Last => b.into(),
                },
                (None, None) => value.clone(),
            };
        }
        (total, value) => *total = value.clone(),
    }
}

const fn joined(rule: MergeRule, a: u64, b: u64) -> u64 {
    match rule {
        MergeRule::Sum => a.saturating_add(b),
        MergeRule::Max => {
            if a > b {
                a
            } else {
                b
            }
        }
        MergeRule::Min => {
            if a < b {
                a
            } else {
                b
            }
        }
        MergeRule::Or => a | b,
        MergeRule::Last => b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_key_are_added_up() {
        let window = |key: &str, packets: u64, least: u64, lost: u64| {
            json!({
                "window": { "seq": 9, "duration_ns": 1, "lost_windows": lost },
                "ingress": { "talkers": { "entries": [
                    { "key": key, "value": { "packets": packets, "min_length": least } },
                    { "key": "c", "value": { "packets": 1, "min_length": 70 } },
                ] } },
                "egress": { "load": { "entries": [{ "value": 0.5 }] } },
            })
        };
        let (a, b) = (window("a", 3, 60, 0), window("b", 4, 50, 2));
        let whole = merged(&[&a, &b, &a], 77, Duration::from_secs(2));
        assert_eq!(
            whole["window"],
            json!({ "seq": 77, "duration_ns": 2_000_000_000_u64, "lost_windows": 2 })
        );
        let entry = |key: &str, packets: u64, least: u64| json!({ "key": key, "value": { "packets": packets, "min_length": least } });
        let expected = json!([entry("a", 6, 60), entry("c", 3, 70), entry("b", 4, 50)]);
        assert_eq!(whole["ingress"]["talkers"]["entries"], expected);
        assert_eq!(
            whole["egress"]["load"]["entries"],
            json!([{ "value": 1.5 }])
        );
    }

    /// One node has few slow answers, and another one many fast answers: the percentiles are those
    /// of all answers.
    #[test]
    fn percentiles_are_those_of_all_values() {
        let window = |slots: &[(u64, u64)]| {
            let entries: Vec<Value> = slots
                .iter()
                .map(|(slot, count)| json!({ "key": slot, "value": count }))
                .collect();
            json!({ "ingress": { "latency": { "histogram": true, "p50": 1, "p95": 1, "p99": 1, "entries": entries } } })
        };
        let (fast, slow) = (window(&[(3, 900), (4, 60)]), window(&[(4, 10), (10, 30)]));
        let whole = merged(&[&fast, &slow], 1, Duration::from_secs(1));
        let latency = &whole["ingress"]["latency"];
        assert_eq!(
            PERCENTILES.map(|(name, _)| latency[name].as_u64()),
            [Some(15), Some(31), Some(2047)]
        );
        let alone = merged(&[&slow], 1, Duration::from_secs(1));
        assert_eq!(alone["ingress"]["latency"]["p50"], 2047);
        assert!(
            merged(&[&window(&[])], 1, Duration::from_secs(1))["ingress"]["latency"]["p50"]
                .is_null()
        );
    }
}
