//! Documents of many daemons added up, by the rules by which a daemon adds up windows.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use twinprobe_api::MergeDocument;
use twinprobe_ebpf_common::field::join::LeafJoin;
use twinprobe_ebpf_common::field::kind::LeafKind;
use twinprobe_ebpf_common::field::meaning::Meaning;
use twinprobe_ebpf_common::field::names;
use twinprobe_ebpf_common::field::plan::Scalar;
use twinprobe_ebpf_common::metric::distribution::{CountedRange, Distribution, PERCENTILES};
use twinprobe_ebpf_common::{MergeRule, MergeRules};

use crate::output::exact::{self, WideInteger};
use crate::output::histogram::distributions;

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
    /// True if the daemon has listed every field that is not a sum. Otherwise names and texts
    /// decide.
    is_complete: bool,
}

impl Rules {
    /// Returns the rules of a metric from a daemon, or from its configuration.
    fn of(status: Option<&Value>, direction: &str, name: &str) -> Self {
        let configured = rules(status.map(|status| &status["config"]), direction, name);
        let Some(joins) = status.and_then(|status| status["joins"].as_array()) else {
            return Self {
                rules: configured,
                is_complete: false,
            };
        };
        let is_own = |join: &&Value| join["direction"] == direction && join["metric"] == name;
        let own = joins
            .iter()
            .find(is_own)
            .map(|join| join["fields"].clone())
            .unwrap_or_default();
        let fields = serde_json::from_value(own).unwrap_or_default();
        Self {
            rules: MergeRules {
                default: MergeRule::Sum,
                fields,
            },
            is_complete: true,
        }
    }

    fn join(&self, path: &str, meaning: Meaning) -> LeafJoin {
        let is_time = matches!(meaning, Meaning::Time { .. });
        let meaning = if self.is_complete && !is_time {
            Meaning::Quantity
        } else {
            meaning
        };
        self.rules.join(path, meaning)
    }
}

/// Returns the rules that a configuration has for a metric.
fn rules(config: Option<&Value>, direction: &str, name: &str) -> MergeRules {
    let metrics = config.and_then(|config| config[direction]["metrics"].as_array());
    let metric = metrics
        .into_iter()
        .flatten()
        .find(|metric| metric["name"] == name);
    let merge = metric.and_then(|metric| serde_json::from_value(metric["merge"].clone()).ok());
    match merge {
        Some(MergeDocument::Whole(rule)) => rule_of(&rule).unwrap_or_default().into(),
        Some(MergeDocument::Fields(fields)) => {
            let fields = fields
                .into_iter()
                .filter_map(|(path, rule)| Some((path, rule_of(&rule)?)));
            MergeRules {
                fields: fields.collect(),
                ..MergeRules::default()
            }
        }
        None => MergeRules::default(),
    }
}

fn rule_of(name: &str) -> Option<MergeRule> {
    MergeRule::NAMES
        .into_iter()
        .find(|(word, _)| *word == name)
        .map(|(_, rule)| rule)
}

/// The members of a histogram that follow from its entries.
const OF_ONE: [&str; 6] = ["count", "p50", "p95", "p99", "ranges", "by_interface"];

/// Adds up the documents. Where the newest value counts, it comes from the document whose window
/// ended last. Fields that can't be added, such as the numbers and lengths of windows, are listed
/// under `nodes`.
pub fn merge(probe: &str, mut parts: Vec<NodePart>) -> Value {
    let end = |part: &NodePart| part.document["window"]["end"].as_str().map(str::to_owned);
    parts.sort_by_key(end);
    let times = |name: &str| {
        let times = parts
            .iter()
            .filter_map(|part| part.document["window"][name].as_str().map(str::to_owned));
        times.collect::<Vec<_>>()
    };
    let (starts, ends) = (times("start"), times("end"));
    let mut merged =
        json!({ "probe": probe, "nodes": parts.iter().map(origin).collect::<Vec<_>>() });
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
                            // The fill of one map says nothing about the entries of all daemons.
                            fields.retain(|field, _| {
                                field != "max_entries" && field != "entries_used"
                            });
                            // The percentiles of one daemon say nothing about all daemons.
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
    let Some(all) = distributions(metric) else {
        return;
    };
    total(metric, all.all());
    let mut of_interfaces = Map::new();
    for (interface, counts) in all.of_interfaces() {
        total(
            of_interfaces.entry(interface).or_insert_with(|| json!({})),
            counts,
        );
    }
    if !of_interfaces.is_empty() {
        metric["by_interface"] = of_interfaces.into();
    }
}

fn total(metric: &mut Value, all: &Distribution) {
    metric["count"] = wide(all.count());
    for (name, percent) in PERCENTILES {
        if let Some(bound) = all.percentile(percent) {
            metric[name] = bound.into();
        }
    }
    let ranges = all.ranges();
    let range =
        |CountedRange { from, to, count }| json!({ "from": from, "to": to, "count": wide(count) });
    metric["ranges"] = ranges.map(range).collect();
}

fn wide(bits: u128) -> Value {
    WideInteger {
        bits,
        is_negative: false,
    }
    .into()
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
        join(
            &mut total["completeness"],
            lost,
            "",
            false,
            &Rules::default(),
        );
    }
    let kind = metric["type"].as_str().unwrap_or_default();
    // Entries of these maps exist from the start: no program wrote a zero.
    let always_there = kind.contains("array") || kind.contains("percpu") || kind == "global";
    let is_keyless = matches!(kind, "queue" | "stack");
    let news = metric["entries"].as_array().cloned().unwrap_or_default();
    let Some(entries) = total["entries"].as_array_mut() else {
        return;
    };
    let known: HashMap<String, usize> = entries
        .iter()
        .enumerate()
        .map(|(i, entry)| (entry["key"].to_string(), i))
        .collect();
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

/// Joins a value with the sum, by the rules by which a daemon joins values. Text (addresses, names)
/// is that of the newest.
fn join(total: &mut Value, value: &Value, path: &str, is_item: bool, rules: &Rules) {
    if let (Some(a), Some(b)) = (exact::integer(total), exact::integer(value)) {
        // Documents do not contain the width of a number.
        let meaning = Meaning::of(Some(&Scalar::Unsigned), path, 32, is_item);
        *total = integer(rules.join(path, meaning), a, b).into();
        return;
    }
    if let (Some(a), Some(b)) = (flags(total), flags(value))
        && rules.join(path, Meaning::Flags).rule == MergeRule::Or
    {
        *total = names::flags(&names::TCP_FLAGS, a | b).map_or_else(|| (a | b).into(), Value::from);
        return;
    }
    match (&mut *total, value) {
        (Value::Object(fields), Value::Object(news)) => {
            for (name, new) in news {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                match fields.get_mut(name) {
                    Some(field) => join(field, new, &path, false, rules),
                    None => _ = fields.insert(name.clone(), new.clone()),
                }
            }
        }
        (Value::Array(items), Value::Array(news)) => {
            for (i, new) in news.iter().enumerate() {
                match items.get_mut(i) {
                    // The values of all CPUs are a list, not an array within the value.
                    Some(item) => join(item, new, path, is_item || !path.is_empty(), rules),
                    // A machine with more CPUs has more values.
                    None => items.push(new.clone()),
                }
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let join = rules.join(path, Meaning::of(None, path, 64, is_item));
            let bits = [a.as_f64(), b.as_f64()]
                .map(|float| u128::from(float.unwrap_or_default().to_bits()));
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

/// Returns the flags of TCP in a value. A number stands for flags without names.
fn flags(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| names::flags_of(&names::TCP_FLAGS, value.as_str()?))
}

/// Returns the join of two texts; `None` if the first text is the result. Times and numbers in hex
/// can be compared.
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
        let kind = LeafKind::Number {
            signed: false,
            swapped: false,
        };
        let joined = join.join(kind, 4 * (total.len() as u32 - 2), a, b);
        return Some(format!("0x{joined:0width$x}", width = total.len() - 2));
    }
    Some(value.to_owned())
}

fn integer(join: LeafJoin, total: WideInteger, value: WideInteger) -> WideInteger {
    let signed = total.is_negative || value.is_negative;
    // Beside a negative number, a number too large for a signed one becomes the largest signed
    // number.
    let fitting = |WideInteger { bits, is_negative }: WideInteger| {
        if signed && !is_negative {
            bits.min(i128::MAX.cast_unsigned())
        } else {
            bits
        }
    };
    let kind = LeafKind::Number {
        signed,
        swapped: false,
    };
    let bits = join.join(kind, u128::BITS, fitting(total), fitting(value));
    WideInteger {
        bits,
        is_negative: signed && bits.cast_signed() < 0,
    }
}

#[cfg(test)]
mod tests;
