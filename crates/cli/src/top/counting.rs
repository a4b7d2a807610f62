//! The metric that a sample belongs to, and what its number counts.

use std::time::Duration;

use twinprobe_api::{ConfigDocument, MetricDocument};

use crate::top::page::Sample;

/// The ending of families of times.
const TIME: &str = "_timestamp_seconds";
/// The base units of families, and words with which the units of a configuration end. The daemon
/// exports `latency_nanoseconds` as `latency_seconds`.
const BASE_UNITS: [(&str, &str); 3] = [
    ("seconds", "seconds"),
    ("bytes", "bytes"),
    ("shannons", "millibits"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthKind {
    /// The number may grow at any moment, not only at the end of a window.
    Live,
    /// The number is the sum of all windows that have ended.
    Sum,
    /// The number belongs to the last window.
    Window,
    /// The number is a time.
    Nothing,
}

/// The kind and the field of a sample, from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    pub counting: GrowthKind,
    /// The part of the name after the metric's name; the whole name if the value is a number.
    pub field: String,
}

impl Measured {
    /// Finds the metric with the longest fitting name.
    pub fn new(sample: &Sample, config: Option<&ConfigDocument>) -> Self {
        let direction = sample.labels.get("direction").map(String::as_str);
        let directions = config.into_iter().flat_map(|config| {
            let all = [("ingress", &config.ingress), ("egress", &config.egress)];
            all.into_iter()
                .filter(move |(name, _)| direction.is_none_or(|direction| direction == *name))
        });
        let metrics =
            directions.flat_map(|(_, of)| of.iter().flat_map(|of| of.metrics.iter().flatten()));
        let subsystem = config.and_then(|config| config.subsystem.as_deref());
        let fitting =
            metrics.filter_map(|metric| Some((rest(&sample.name, subsystem, metric)?, metric)));
        let found = fitting.min_by_key(|(rest, _)| rest.len());
        let counting = match found {
            _ if is_time(&sample.name) => GrowthKind::Nothing,
            Some((_, metric)) if metric.init == Some(true) => GrowthKind::Window,
            Some((_, metric)) if metric.snapshot == Some(true) => GrowthKind::Sum,
            _ => GrowthKind::Live,
        };
        let field = found.map_or("", |(rest, _)| rest);
        let is_whole = field.is_empty() || field == "total";
        Self {
            counting,
            field: if is_whole {
                sample.name.clone()
            } else {
                field.to_owned()
            },
        }
    }
}

/// Tells whether the samples of a family are times.
pub fn is_time(family: &str) -> bool {
    family.ends_with(TIME)
}

/// Returns what follows the exported name of a metric in the name of a sample; `None` if the sample
/// is of another metric.
fn rest<'a>(sample: &'a str, subsystem: Option<&str>, metric: &MetricDocument) -> Option<&'a str> {
    let name = metric.name.as_deref().or(metric.map.as_deref())?;
    let legal = |c: char| {
        if c.is_ascii_alphanumeric() || c == ':' {
            c
        } else {
            '_'
        }
    };
    let name: String = subsystem
        .into_iter()
        .chain([name])
        .collect::<Vec<_>>()
        .join("_")
        .chars()
        .map(legal)
        .collect();
    let mut left = sample;
    for word in name.split('_') {
        let (exported, behind) = left.split_once('_').unwrap_or((left, ""));
        let is_base = |(base, unit): (&str, &str)| exported == base && word.ends_with(unit);
        if exported != word && !BASE_UNITS.into_iter().any(is_base) {
            return None;
        }
        left = behind;
    }
    Some(left)
}

/// The time between the windows of a probe.
pub fn interval(config: &ConfigDocument) -> Option<Duration> {
    let text = config.window.as_ref()?.interval.as_deref()?;
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some(Duration::from_secs_f64(number * unit)).filter(|interval| !interval.is_zero())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::GrowthKind::{Live, Nothing, Sum, Window};
    use super::*;

    #[test]
    fn samples_are_found_by_the_exported_names_of_metrics() {
        let config: ConfigDocument = serde_json::from_value(json!({ "subsystem": "net",
            "ingress": { "metrics": [{ "name": "flows", "snapshot": true, "init": true }, { "name": "flow" },
                { "name": "flows_all", "snapshot": true }, { "name": "wait_nanoseconds", "snapshot": true }] },
            "egress": { "metrics": [{ "map": "flows", "snapshot": true }] } }))
        .unwrap();
        let of = |direction: &str, name: &str| {
            let labels = BTreeMap::from([("direction".to_owned(), direction.to_owned())]);
            let measured = Measured::new(
                &Sample {
                    name: name.to_owned(),
                    labels,
                    value: 1.0,
                },
                Some(&config),
            );
            (measured.counting, measured.field)
        };
        for (direction, name, counting, field) in [
            ("ingress", "net_flows_packets", Window, "packets"),
            (
                "ingress",
                "net_flows_last_timestamp_seconds",
                Nothing,
                "last_timestamp_seconds",
            ),
            ("ingress", "net_flow_packets_total", Live, "packets_total"),
            ("ingress", "net_flows_all_total", Sum, "net_flows_all_total"),
            ("ingress", "net_wait_seconds_bucket", Sum, "bucket"),
            ("ingress", "flows_packets", Live, "flows_packets"),
            ("egress", "net_flows_packets_total", Sum, "packets_total"),
        ] {
            assert_eq!(of(direction, name), (counting, field.to_owned()), "{name}");
        }
    }
}
