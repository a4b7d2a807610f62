//! Documents of many daemons added up, by the rules by which a daemon adds up windows.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use twinprobe_api::MergeDocument;
use twinprobe_ebpf_common::field::join::LeafJoin;
use twinprobe_ebpf_common::field::kind::LeafKind;
use twinprobe_ebpf_common::field::meaning::Meaning;
use twinprobe_ebpf_common::field::plan::Scalar;
use twinprobe_ebpf_common::metric::distribution::{CountedRange, PERCENTILES};
use twinprobe_ebpf_common::{MergeRule, MergeRules};

use crate::output::exact::{self, WideInteger};
use crate::output::histogram::distribution;

/// The document of one daemon, and the status of its probe.
pub struct NodePart {
    pub node: String,
    pub document: Value,
    pub status: Option<Value>,
}

/// The rules of one metric.
#[derive(Debug, Default)]
struct Rules {
    rules: MergeRules,
    /// True if the daemon has listed every field that is not a sum. Otherwise names and texts decide.
    is_complete: bool,
}

impl Rules {
    /// Returns the rules that a daemon has for a metric, or that its configuration has.
    fn of(status: Option<&Value>, direction: &str, name: &str) -> Self {
        let configured = rules(status.map(|status| &status["config"]), direction, name);
        let Some(joins) = status.and_then(|status| status["joins"].as_array()) else {
            return Self { rules: configured, is_complete: false };
        };
        let is_own = |join: &&Value| join["direction"] == direction && join["metric"] == name;
        let own = joins.iter().find(is_own).map(|join| join["fields"].clone()).unwrap_or_default();
        let fields = serde_json::from_value(own).unwrap_or_default();
        Self { rules: MergeRules { default: MergeRule::Sum, fields }, is_complete: true }
    }

    fn join(&self, path: &str, meaning: Meaning) -> LeafJoin {
        let is_time = matches!(meaning, Meaning::Time { .. });
        let meaning = if self.is_complete && !is_time { Meaning::Quantity } else { meaning };
        self.rules.join(path, meaning)
    }
}

/// Returns the rules that a configuration has for a metric.
fn rules(config: Option<&Value>, direction: &str, name: &str) -> MergeRules {
    let metrics = config.and_then(|config| config[direction]["metrics"].as_array());
    let metric = metrics.into_iter().flatten().find(|metric| metric["name"] == name);
    let merge = metric.and_then(|metric| serde_json::from_value(metric["merge"].clone()).ok());
    match merge {
        Some(MergeDocument::Whole(rule)) => rule_of(&rule).unwrap_or_default().into(),
        Some(MergeDocument::Fields(fields)) => {
            let fields = fields.into_iter().filter_map(|(path, rule)| Some((path, rule_of(&rule)?)));
            MergeRules { fields: fields.collect(), ..MergeRules::default() }
        }
        None => MergeRules::default(),
    }
}

fn rule_of(name: &str) -> Option<MergeRule> {
    MergeRule::NAMES.into_iter().find(|(word, _)| *word == name).map(|(_, rule)| rule)
}

/// The members of a histogram that follow from its entries.
const OF_ONE: [&str; 5] = ["count", "p50", "p95", "p99", "ranges"];

/// Adds up the documents. Where the newest value counts, it is that of the document whose window ended last. Fields
/// that can't be added, such as the numbers and lengths of windows, are listed under `nodes`.
pub fn merge(probe: &str, mut parts: Vec<NodePart>) -> Value {
    let end = |part: &NodePart| part.document["window"]["end"].as_str().map(str::to_owned);
    parts.sort_by_key(end);
    let times = |name: &str| {
        let times = parts.iter().filter_map(|part| part.document["window"][name].as_str().map(str::to_owned));
        times.collect::<Vec<_>>()
    };
    let (starts, ends) = (times("start"), times("end"));
    let mut merged = json!({ "probe": probe, "nodes": parts.iter().map(origin).collect::<Vec<_>>() });
    if let (Some(start), Some(end)) = (starts.into_iter().min(), ends.into_iter().max()) {
        merged["window"] = json!({ "start": start, "end": end });
    }
    for direction in ["ingress", "egress"] {
        let mut metrics = Map::new();
        for part in &parts {
            for (name, metric) in part.document[direction].as_object().into_iter().flatten() {
                let rules = Rules::of(part.status.as_ref(), direction, name);
                match metrics.get_mut(name) {
                    None => {
                        let mut metric = metric.clone();
                        if let Some(fields) = metric.as_object_mut() {
                            // The room of one map says nothing about the entries of all.
                            fields.retain(|field, _| field != "max_entries" && field != "entries_used");
                            // Percentiles of one daemon are not those of all.
                            fields.retain(|field, _| !OF_ONE.contains(&field.as_str()));
                        }
                        metrics.insert(name.clone(), metric);
                    }
                    Some(total) => add(total, metric, &rules),
                }
            }
        }
        metrics.values_mut().for_each(summarize);
        merged[direction] = Value::Object(metrics);
    }
    merged
}

/// Adds the totals of a histogram's slots, as in documents of daemons.
fn summarize(metric: &mut Value) {
    let Some(all) = distribution(metric) else { return };
    metric["count"] = wide(all.count());
    for (name, percent) in PERCENTILES {
        if let Some(bound) = all.percentile(percent) {
            metric[name] = bound.into();
        }
    }
    let ranges = all.ranges();
    let range = |CountedRange { from, to, count }| json!({ "from": from, "to": to, "count": wide(count) });
    metric["ranges"] = ranges.map(range).collect();
}

fn wide(bits: u128) -> Value {
    WideInteger { bits, is_negative: false }.into()
}

fn origin(part: &NodePart) -> Value {
    let document = &part.document;
    let mut origin = Map::from_iter([("server".to_owned(), part.node.clone().into())]);
    for field in ["node", "instance", "interfaces", "approximate", "window"] {
        if let Some(value) = document.get(field) {
            origin.insert(field.to_owned(), value.clone());
        }
    }
    Value::Object(origin)
}

/// Adds a metric of one daemon to the sum.
fn add(total: &mut Value, metric: &Value, rules: &Rules) {
    if metric["full"] == true {
        total["full"] = true.into();
    }
    if let Some(lost) = metric.get("completeness").filter(|lost| lost.is_object()) {
        if total.get("completeness").is_none() {
            total["completeness"] = json!({});
        }
        join(&mut total["completeness"], lost, "", false, &Rules::default());
    }
    let kind = metric["type"].as_str().unwrap_or_default();
    // Entries of these maps are there from the start: a zero was written by no program.
    let always_there = kind.contains("array") || kind.contains("percpu") || kind == "global";
    let is_keyless = matches!(kind, "queue" | "stack");
    let news = metric["entries"].as_array().cloned().unwrap_or_default();
    let Some(entries) = total["entries"].as_array_mut() else { return };
    let known: HashMap<String, usize> =
        entries.iter().enumerate().map(|(i, entry)| (entry["key"].to_string(), i)).collect();
    for new in news {
        match known.get(&new["key"].to_string()).filter(|_| !is_keyless) {
            None => entries.push(new),
            Some(_) if always_there && is_zero(&new["value"]) => {}
            Some(at) if always_there && is_zero(&entries[*at]["value"]) => entries[*at] = new,
            Some(at) => join(&mut entries[*at]["value"], &new["value"], "", false, rules),
        }
    }
}

pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.iter().all(is_zero),
        Value::Object(fields) => fields.values().all(is_zero),
        Value::Bool(flag) => !flag,
        Value::Null => true,
        Value::String(_) => false,
    }
}

/// Joins a value with the sum, by the rules by which a daemon joins values. Text (addresses, names) is that of the newest.
fn join(total: &mut Value, value: &Value, path: &str, is_item: bool, rules: &Rules) {
    if let (Some(a), Some(b)) = (exact::integer(total), exact::integer(value)) {
        // Documents do not say how wide a number is.
        let meaning = Meaning::of(Some(&Scalar::Unsigned), path, 32, is_item);
        *total = integer(rules.join(path, meaning), a, b).into();
        return;
    }
    match (&mut *total, value) {
        (Value::Object(fields), Value::Object(news)) => {
            for (name, new) in news {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match fields.get_mut(name) {
                    Some(field) => join(field, new, &path, false, rules),
                    None => _ = fields.insert(name.clone(), new.clone()),
                }
            }
        }
        (Value::Array(items), Value::Array(news)) => {
            for (i, new) in news.iter().enumerate() {
                match items.get_mut(i) {
                    // The values of all CPUs are a list around the value, and no array in it.
                    Some(item) => join(item, new, path, is_item || !path.is_empty(), rules),
                    // A machine with more CPUs has more values.
                    None => items.push(new.clone()),
                }
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let join = rules.join(path, Meaning::of(None, path, 64, is_item));
            let bits = [a.as_f64(), b.as_f64()].map(|float| u128::from(float.unwrap_or_default().to_bits()));
            *total = f64::from_bits(join.join(LeafKind::Float, 64, bits[0], bits[1]) as u64).into();
        }
        (Value::Bool(a), Value::Bool(b)) => match rules.join(path, Meaning::Quantity).rule {
            MergeRule::Last => *a = *b,
            MergeRule::Min => *a &= b,
            _ => *a |= b,
        },
        (Value::String(a), Value::String(b)) => {
            if let Some(joined) = text(path, is_item, rules, a, b) {
                *a = joined;
            }
        }
        (total, value) => *total = value.clone(),
    }
}

/// Returns the join of two texts; `None` if it is the first one. Times and numbers in hex can be compared.
fn text(path: &str, is_item: bool, rules: &Rules, total: &str, value: &str) -> Option<String> {
    if total.parse::<Timestamp>().is_ok() && value.parse::<Timestamp>().is_ok() {
        let meaning = Meaning::of(Some(&Scalar::Time), path, 64, is_item);
        let is_next = match rules.join(path, meaning).rule {
            MergeRule::Min => value < total,
            MergeRule::Max => value > total,
            _ => true,
        };
        return is_next.then(|| value.to_owned());
    }
    let hex = |text: &str| u128::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let meaning = Meaning::of(Some(&Scalar::Hex), path, 64, is_item);
    let join = rules.join(path, meaning);
    if let (Some(a), Some(b)) = (hex(total), hex(value))
        && join.rule != MergeRule::Last
        && total.len() == value.len()
    {
        let kind = LeafKind::Number { signed: false, swapped: false };
        let joined = join.join(kind, 4 * (total.len() as u32 - 2), a, b);
        return Some(format!("0x{joined:0width$x}", width = total.len() - 2));
    }
    Some(value.to_owned())
}

fn integer(join: LeafJoin, total: WideInteger, value: WideInteger) -> WideInteger {
    let signed = total.is_negative || value.is_negative;
    // A number too large for a signed one becomes the largest signed number beside a negative one.
    let fitting = |WideInteger { bits, is_negative }: WideInteger| {
        if signed && !is_negative { bits.min(i128::MAX.cast_unsigned()) } else { bits }
    };
    let kind = LeafKind::Number { signed, swapped: false };
    let bits = join.join(kind, u128::BITS, fitting(total), fitting(value));
    WideInteger { bits, is_negative: signed && bits.cast_signed() < 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(node: &str, end: &str, metrics: &Value) -> NodePart {
        let config = json!({ "ingress": { "metrics": [
            { "name": "flows", "merge": { "last": "max", "first": "min" } }, { "name": "state", "merge": "or" } ] } });
        let document = json!({ "node": node, "window": { "seq": 3, "start": "2026-11-22T10:00:00Z", "end": end },
            "ingress": metrics, "egress": {} });
        NodePart { node: node.to_owned(), document, status: Some(json!({ "config": config })) }
    }

    #[test]
    fn documents_add_up_by_the_rules_of_each_metric() {
        let flows = |key: &str, packets: u64, first: u64, last: u64| {
            json!({ "key": key, "value": { "packets": packets,
            "first": first, "last": last, "from": key } })
        };
        let a = json!({ "flows": { "type": "hash", "max_entries": 2, "entries": [flows("x", 1, 10, 20), flows("y", 5, 1, 2)] },
            "state": { "type": "array", "entries": [{ "key": 0, "value": 5 }, { "key": 1, "value": 0 }] },
            "per_cpu": { "type": "percpu_array", "entries": [{ "key": 0, "value": [1, 2] }] } });
        let b = json!({ "flows": { "type": "hash", "full": true, "entries": [flows("x", u64::MAX - 1, 8, 12)] },
            "state": { "type": "array", "entries": [{ "key": 0, "value": 2 }, { "key": 1, "value": 4 }] },
            "per_cpu": { "type": "percpu_array", "entries": [{ "key": 0, "value": [1, 2, 3] }] },
            "only_here": { "type": "queue", "entries": [{ "value": 7 }] } });
        let merged =
            merge("p", vec![part("b", "2026-11-22T10:00:20Z", &b), part("a", "2026-11-22T10:00:10Z", &a)]);
        assert_eq!(
            merged["window"],
            json!({ "start": "2026-11-22T10:00:00Z", "end": "2026-11-22T10:00:20Z" })
        );
        let ingress = &merged["ingress"];
        assert_eq!(ingress["flows"]["entries"], json!([flows("x", u64::MAX, 8, 20), flows("y", 5, 1, 2)]));
        assert_eq!((&ingress["flows"]["full"], ingress["flows"].get("max_entries")), (&json!(true), None));
        assert_eq!(ingress["state"]["entries"], json!([{ "key": 0, "value": 7 }, { "key": 1, "value": 4 }]));
        assert_eq!(ingress["per_cpu"]["entries"][0]["value"], json!([2, 4, 3]));
        assert_eq!(ingress["only_here"]["entries"], json!([{ "value": 7 }]));
        assert_eq!(merged["nodes"][1]["node"], "b");
    }

    #[test]
    fn queues_are_appended() {
        let queue = |value: u64| json!({ "q": { "type": "queue", "entries": [{ "value": value }] } });
        let parts = vec![part("a", "1", &queue(1)), part("b", "2", &queue(1))];
        assert_eq!(merge("p", parts)["ingress"]["q"]["entries"], json!([{ "value": 1 }, { "value": 1 }]));
    }

    #[test]
    fn sums_go_on_where_64_bits_end() {
        let part = |node: &str, value: &str| {
            let metrics = format!(r#"{{"v":{{"type":"array","entries":[{{"key":0,"value":{value}}}]}}}}"#);
            part(node, node, &exact::parse(metrics.as_bytes()).unwrap())
        };
        for (values, expected) in [
            (["9223372036854775813", "9223372036854775813", "9223372036854775813"], "27670116110564327439"),
            (["-9223372036854775808", "-1", "-18446744073709551616"], "-27670116110564327425"),
            (
                ["340282366920938463463374607431768211455", "1", "0"],
                "340282366920938463463374607431768211455",
            ),
            (["18446744073709551616", "-1", "1"], "18446744073709551616"),
        ] {
            let parts = ["a", "b", "c"].into_iter().zip(values).map(|(node, value)| part(node, value));
            let merged = merge("p", parts.collect());
            let text = exact::written(merged["ingress"]["v"]["entries"].to_string());
            assert_eq!(text, format!(r#"[{{"key":0,"value":{expected}}}]"#));
        }
    }

    #[test]
    fn fields_join_by_what_they_mean() {
        let early = "2026-11-22T10:00:00.000000000Z";
        let late = "2026-11-22T10:00:00.000000001Z";
        let value = |packets: u64, min: u64, flags: &str, times: [&str; 2]| {
            json!({ "v": { "type": "hash", "entries": [{ "key": 1, "value": {
                "packets": packets, "min_length": min, "port": 80, "tcp_flags": min, "flags": flags, "load": 0.5,
                "first": times[0], "last": times[1], "list": [min] } }] } })
        };
        let a = value(u64::MAX, 60, "0x12", [late, late]);
        let b = value(1, 40, "0x01", [early, early]);
        let merged = merge("p", vec![part("a", "1", &a), part("b", "2", &b)]);
        let past = exact::parse(b"18446744073709551616").unwrap();
        let expected = json!({ "packets": past, "min_length": 40, "port": 80, "tcp_flags": 60 | 40, "flags": "0x13",
            "load": 1.0, "first": early, "last": late, "list": [100] });
        assert_eq!(merged["ingress"]["v"]["entries"][0]["value"], expected);

        // The daemon's word comes first: the daemon knows the width of a number and its rendering.
        let value = |port: u64| json!({ "v": { "type": "hash", "entries": [{ "key": 1, "value": { "to": port, "port": port } }] } });
        let part = |node: &str| {
            let mut part = part(node, node, &value(80));
            part.status = Some(json!({ "joins": [
                { "direction": "egress", "metric": "v", "fields": { "port": "last" } },
                { "direction": "ingress", "metric": "v", "fields": { "to": "last" } } ] }));
            part
        };
        let merged = merge("p", vec![part("a"), part("b")]);
        assert_eq!(merged["ingress"]["v"]["entries"][0]["value"], json!({ "to": 80, "port": 160 }));
    }
}
