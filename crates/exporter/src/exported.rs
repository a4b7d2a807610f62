//! One number of a metric, in the form of samples: the name and the labels by which a server finds
//! its samples again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Number as JsonNumber, Value};
use twinprobe_ebpf_common::field::plan::{Plan, Scalar};

use crate::encode::openmetrics::names::family::{FamilyKind, kind, sample_name};
use crate::encode::openmetrics::names::units::Scale;
use crate::encode::openmetrics::samples::{Dimension, FamilySamples};
use crate::encode::openmetrics::series::MetricSeries;
use crate::metric::Metric;

/// The name of the key that represents all other keys, and the label of this key if keys have
/// several labels.
const OTHER: &str = "other";
const WHOLE: &str = "key";
/// The label with the upper bound of a bucket.
const BOUND: &str = "le";
/// The label that distinguishes the values of CPUs.
const CPU: &str = "cpu";
/// The relative difference by which a float may differ from the integer that it represents.
const NOISE: f64 = 1e-9;

/// The samples of one number of a metric.
#[derive(Clone, Debug)]
pub struct ExportedNumber {
    /// The name of the samples.
    pub name: String,
    /// True if the samples belong to a counter.
    pub is_counter: bool,
    /// The labels that distinguish the samples of one key from those of other keys.
    pub by: Vec<String>,
    /// The labels of the values of CPUs and of the items of arrays, whose samples together make one
    /// number.
    pub parts: Vec<String>,
    /// True if only the largest keys have samples.
    pub is_limited: bool,
    /// The number of labels, up to and including the label of the interface, that the sample for
    /// all other keys has.
    others: usize,
    /// The labels that make the key, and its plan; `None` if there are no keys.
    keys: Vec<String>,
    plan: Option<Plan<String>>,
    scale: Scale,
    /// The unit of the bounds if the samples are buckets. The count of each bucket includes the
    /// buckets below it.
    bounds: Option<Scale>,
}

/// The error for a number that has no samples. The text gives the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoSamples(&'static str);

impl ExportedNumber {
    /// Finds the samples of the number with this path in the values. `configured` are the labels of
    /// the probe's configuration.
    pub fn new(
        metric: &Arc<Metric>,
        path: &str,
        configured: &BTreeMap<String, String>,
    ) -> Result<Self, NoSamples> {
        let series = MetricSeries::new("", configured, &[], metric, Arc::default());
        let samples = &series.samples;
        if samples.is_histogram && !metric.is_histogram() {
            return Err(NoSamples(
                "each interface has a histogram of its own, and charts of history show one",
            ));
        }
        if samples.is_histogram {
            let value = samples
                .values
                .first()
                .ok_or(NoSamples("OpenMetrics has no samples of it"))?;
            return Ok(Self::of_buckets(&series, value));
        }
        let value = samples.values.iter().find(|value| value.field == path);
        let value = value.ok_or(NoSamples("OpenMetrics has no samples of it"))?;
        if value.scale == Scale::SinceBoot {
            return Err(NoSamples("it is a time, which has no course over time"));
        }
        let kind = kind(&series, value);
        let cpus = series.is_percpu().then(|| CPU.to_owned());
        let items = value
            .arrays
            .iter()
            .map(|Dimension { prefix, .. }| label_of(prefix));
        let keys: Vec<String> = samples
            .keys
            .iter()
            .map(|key| label_of(&key.label))
            .collect();
        let layout = &series.metric.layout;
        let plan = layout
            .kind
            .has_keys()
            .then(|| Plan::new(&layout.key, str::to_owned));
        let mut by = keys.clone();
        by.extend(plan.as_ref().map(|_| label_of(&samples.padding.1)));
        let others = usize::from(layout.interface_bytes() > 0);
        if series.is_limited() && keys.len() > others + 1 && !by.iter().any(|label| label == WHOLE)
        {
            by.push(WHOLE.to_owned());
        }
        Ok(Self {
            name: sample_name(kind, value),
            is_counter: kind == FamilyKind::Counter,
            by,
            parts: cpus.into_iter().chain(items).collect(),
            is_limited: series.is_limited(),
            others,
            keys,
            plan,
            scale: value.scale,
            bounds: None,
        })
    }

    /// Returns the samples with the counts of a histogram's slots.
    fn of_buckets(series: &MetricSeries, value: &FamilySamples) -> Self {
        Self {
            name: format!("{}_bucket", value.family),
            is_counter: kind(series, value) == FamilyKind::Histogram,
            by: vec![BOUND.to_owned()],
            parts: series
                .is_percpu()
                .then(|| CPU.to_owned())
                .into_iter()
                .collect(),
            is_limited: false,
            others: 0,
            keys: Vec::new(),
            plan: None,
            scale: Scale::Decimal(0),
            bounds: Some(value.scale),
        }
    }

    /// Tells whether the samples are buckets of a histogram. The count of each bucket includes the
    /// buckets below it.
    pub const fn is_of_buckets(&self) -> bool {
        self.bounds.is_some()
    }

    /// Tells whether samples with these labels represent all keys without samples of their own.
    pub fn is_others(&self, labels: &BTreeMap<String, String>) -> bool {
        let is_other = |name: &str| {
            labels
                .get(name)
                .is_some_and(|text| text.trim_end_matches('_') == OTHER)
        };
        self.is_limited
            && match &self.keys[self.others..] {
                [one] => is_other(one),
                several => {
                    is_other(WHOLE)
                        && several
                            .iter()
                            .all(|name| name == WHOLE || !labels.contains_key(name))
                }
            }
    }

    /// Returns the key for samples with these labels, in the form of documents; `null` if the map
    /// has no keys.
    pub fn key(&self, labels: &BTreeMap<String, String>) -> Value {
        let text = |name: &String| labels.get(name).map_or("", |text| text.as_str());
        if let Some(scale) = self.bounds {
            return labels
                .get(BOUND)
                .and_then(|bound| slot(unscaled(scale, bound.parse().ok()?)))
                .into();
        }
        match &self.plan {
            None => Value::Null,
            Some(plan) if leaves(plan) == self.keys.len() => {
                assembled(plan, &mut self.keys.iter().map(text))
            }
            Some(_) => self.keys.first().map(text).unwrap_or_default().into(),
        }
    }

    /// Returns the number of a sample in the unit of the metric, in the form of documents; `None`
    /// for NaN and for infinities.
    pub fn original(&self, sample: f64) -> Option<JsonNumber> {
        let number = unscaled(self.scale, sample);
        let whole = number.round();
        let is_whole = (number - whole).abs() <= NOISE * whole.abs().max(1.0);
        match is_whole && whole.abs() < 9e18 {
            true if whole >= 0.0 => Some((whole as u64).into()),
            true => Some((whole as i64).into()),
            false => JsonNumber::from_f64(number),
        }
    }
}

/// Returns a number in the unit of the metric.
fn unscaled(scale: Scale, number: f64) -> f64 {
    match scale {
        Scale::Decimal(power @ ..0) => number * 10_f64.powi(-i32::from(power)),
        Scale::Decimal(power) => number / 10_f64.powi(power.into()),
        Scale::Binary(power) => number / 2_f64.powi(power.into()),
        Scale::SinceBoot => number,
    }
}

/// Returns the slot whose largest value is this bound; `None` for the bucket of all values.
fn slot(bound: f64) -> Option<u64> {
    bound
        .is_finite()
        .then(|| ((bound + 1.0).log2().round() - 1.0).max(0.0) as u64)
}

/// Returns the name of a label from its start `,name="`.
fn label_of(start: &str) -> String {
    let name = start
        .strip_prefix(',')
        .and_then(|start| start.strip_suffix("=\""));
    name.unwrap_or(start).to_owned()
}

/// Returns the number of labels that the parts of a key have.
fn leaves(plan: &Plan<String>) -> usize {
    match plan {
        Plan::Struct(fields) => fields.iter().map(|field| leaves(&field.plan)).sum(),
        Plan::Array { element, len, .. } => leaves(element).saturating_mul(*len),
        _ => 1,
    }
}

/// Makes a key from the texts of its parts, in the order of the parts.
fn assembled<'a>(plan: &Plan<String>, texts: &mut impl Iterator<Item = &'a str>) -> Value {
    match plan {
        Plan::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|field| (field.label.clone(), assembled(&field.plan, texts)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Plan::Array { element, len, .. } => (0..*len).map(|_| assembled(element, texts)).collect(),
        leaf => part(leaf, texts.next().unwrap_or_default()),
    }
}

/// Returns a part of a key in the form of documents: a number, if the label's text stands for one.
fn part(plan: &Plan<String>, text: &str) -> Value {
    let number = match plan {
        Plan::Scalar {
            kind: Scalar::Bool, ..
        } => {
            return text.parse().map_or_else(|_| text.into(), Value::Bool);
        }
        Plan::Scalar {
            kind: Scalar::Hex | Scalar::Ktime | Scalar::Time,
            ..
        } => None,
        // An enumeration and an interface have a number where they have no name.
        Plan::Scalar { .. } => integer(text),
        Plan::Float { .. } => text.parse().ok().and_then(JsonNumber::from_f64),
        _ => None,
    };
    number.map_or_else(|| text.into(), Value::Number)
}

fn integer(text: &str) -> Option<JsonNumber> {
    let unsigned = text.parse::<u64>().map(JsonNumber::from).ok();
    unsigned.or_else(|| text.parse::<i64>().map(JsonNumber::from).ok())
}

#[cfg(test)]
mod tests;
