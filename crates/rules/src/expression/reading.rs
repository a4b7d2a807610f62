//! The values that expressions take from windows: numbers over the entries of metrics, the key of
//! the largest entry, the window itself.

use cel::Value as CelValue;
use serde_json::Value;
use twinprobe_ebpf_common::Direction;

use crate::view::WindowView;

/// The type of a part of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Number,
    Boolean,
    Text,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Text => "a text",
        }
    }
}

/// A function over the entries of a metric. If there are no entries, numbers are 0 and a key is
/// empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFunction {
    Sum,
    Max,
    Min,
    Count,
    /// The sum for each second of the window.
    Rate,
    /// The key of the entry with the largest number.
    Top,
    /// A percentile of a histogram: its name in documents.
    Percentile(&'static str),
}

impl WindowFunction {
    pub const NAMES: &'static str = "sum, max, min, count, rate, top, p50, p95, p99";

    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Self::Sum,
            "max" => Self::Max,
            "min" => Self::Min,
            "count" => Self::Count,
            "rate" => Self::Rate,
            "top" => Self::Top,
            "p50" => Self::Percentile("p50"),
            "p95" => Self::Percentile("p95"),
            "p99" => Self::Percentile("p99"),
            _ => return None,
        })
    }

    pub const fn needs_number(self) -> bool {
        !matches!(self, Self::Count)
    }
}

/// A value that an expression takes from a window.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// The length of the window in seconds.
    Seconds,
    /// The number of the window.
    Number,
    /// True if the numbers of the window differ from those on the wire.
    Approximate,
    /// The number of windows that were lost before this window.
    Lost,
    Metric(MetricQuestion),
}

/// A function over the entries of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricQuestion {
    pub function: WindowFunction,
    pub direction: Direction,
    pub metric: String,
    /// The entries that count; `None` if all do.
    pub selector: Option<Selector>,
    /// The path of the number in a value; empty for the value itself.
    pub field: String,
    /// The part of a key that [`WindowFunction::Top`] returns; empty for the key itself.
    pub part: String,
}

/// The entries that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The key, as documents show it.
    Key(String),
    /// The part of the key at this path has this value.
    Part(String, String),
}

impl Selector {
    fn chooses(&self, key: &Value) -> bool {
        match self {
            Self::Key(text) => shown(key) == *text,
            Self::Part(path, text) => at(key, path).is_some_and(|part| shown(part) == *text),
        }
    }
}

/// A value from a window: from the judged window, or from the previous one.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    pub of_previous: bool,
    pub question: Question,
}

impl Question {
    /// Returns the value of the window.
    pub fn ask(&self, window: &WindowView<'_>) -> CelValue {
        match self {
            Self::Seconds => CelValue::Float(window.seconds()),
            Self::Number => CelValue::Float(window.number()),
            Self::Approximate => CelValue::Bool(window.is_approximate()),
            Self::Lost => CelValue::Float(window.lost()),
            Self::Metric(question) => question.ask(window),
        }
    }
}

impl MetricQuestion {
    fn ask(&self, window: &WindowView<'_>) -> CelValue {
        let metric = window.metric(self.direction, &self.metric);
        let entries = metric["entries"].as_array().map_or(&[][..], Vec::as_slice);
        let is_chosen = |entry: &&Value| {
            self.selector
                .as_ref()
                .is_none_or(|selector| selector.chooses(&entry["key"]))
        };
        let chosen = || entries.iter().filter(is_chosen);
        let numbers = || chosen().filter_map(|entry| self.number(&entry["value"]));
        let number = match self.function {
            WindowFunction::Sum => numbers().sum(),
            WindowFunction::Rate => numbers().sum::<f64>() / window.seconds(),
            WindowFunction::Max => numbers().reduce(f64::max).unwrap_or(0.0),
            WindowFunction::Min => numbers().reduce(f64::min).unwrap_or(0.0),
            WindowFunction::Count => chosen().count() as f64,
            WindowFunction::Percentile(name) => metric[name].as_f64().unwrap_or(0.0),
            WindowFunction::Top => {
                let by_number = |entry: &&Value| self.number(&entry["value"]).unwrap_or(f64::MIN);
                let top = chosen().max_by(|a, b| by_number(a).total_cmp(&by_number(b)));
                let part = top.and_then(|entry| at(&entry["key"], &self.part));
                return CelValue::from(part.map_or_else(String::new, shown));
            }
        };
        CelValue::Float(number)
    }

    fn number(&self, value: &Value) -> Option<f64> {
        at(value, &self.field)?.as_f64()
    }
}

fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .filter(|name| !name.is_empty())
        .try_fold(value, |value, name| value.get(name))
}

/// Returns a key as expressions write it.
fn shown(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
