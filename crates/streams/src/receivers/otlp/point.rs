//! A point of OTLP: the data of a window, and the message with it.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    metric, number_data_point,
};
use prost::Message as _;
use twinprobe_ebpf_common::window::shape::{FamilyShape, WindowShape};
use twinprobe_ebpf_common::{MergeRule, Temporality};

use crate::samples::document::{NamedSample, SampleFamily, SampleKind, SamplePoint};

/// A point of a metric.
pub struct OtlpPoint {
    pub head: Arc<OtlpHead>,
    pub value: PointValue,
}

/// The facts that the points of a metric share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpHead {
    name: String,
    help: String,
    unit: &'static str,
    data: PointData,
}

/// The kinds of data that the numbers of a point can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointData {
    Gauge,
    /// Counts within the window, or since the deployment.
    Sum {
        of_window: bool,
        is_monotonic: bool,
    },
    Histogram {
        of_window: bool,
    },
}

/// The part of the message that contains the numbers of a point.
pub enum PointValue {
    Number(NumberDataPoint),
    Histogram(HistogramDataPoint),
}

impl OtlpPoint {
    /// Adds an attribute.
    pub fn add(&mut self, attribute: KeyValue) {
        match &mut self.value {
            PointValue::Number(point) => point.attributes.push(attribute),
            PointValue::Histogram(point) => point.attributes.push(attribute),
        }
    }

    /// Returns the point as one line: name, attributes, value and kind.
    pub fn shown(&self) -> String {
        let (attributes, value) = match &self.value {
            PointValue::Number(point) => (
                &point.attributes,
                match point.value {
                    Some(number_data_point::Value::AsInt(number)) => number.to_string(),
                    Some(number_data_point::Value::AsDouble(number)) => number.to_string(),
                    None => String::new(),
                },
            ),
            PointValue::Histogram(point) => (&point.attributes, format!("{} values", point.count)),
        };
        let attributes = attributes.iter().map(|KeyValue { key, value, .. }| {
            match value.as_ref().and_then(|value| value.value.as_ref()) {
                Some(any_value::Value::StringValue(text)) => format!("{key}={text:?}"),
                Some(any_value::Value::IntValue(number)) => format!("{key}={number}"),
                _ => key.clone(),
            }
        });
        let kind = match self.head.data {
            PointData::Gauge => "gauge",
            PointData::Sum {
                of_window: true, ..
            }
            | PointData::Histogram { of_window: true } => "delta",
            PointData::Sum { .. } | PointData::Histogram { .. } => "cumulative",
        };
        format!(
            "{}{{{}}} {value} ({kind})",
            self.head.name,
            attributes.collect::<Vec<_>>().join(",")
        )
    }

    pub fn size(&self) -> usize {
        match &self.value {
            PointValue::Number(point) => point.encoded_len(),
            PointValue::Histogram(point) => point.encoded_len(),
        }
    }
}

impl OtlpHead {
    /// Makes the head from a family of samples. `sample` is one of the samples: both directions may
    /// share a family, with numbers of different kinds.
    pub fn new(family: &SampleFamily<'_>, sample: &NamedSample<'_>, shape: &WindowShape) -> Self {
        let found = found(family, sample, shape);
        let unit = found
            .and_then(|(_, found)| found.unit.as_deref())
            .map_or("", unit);
        let data = match (family.kind, found) {
            (SampleKind::GaugeHistogram, _) => PointData::Histogram { of_window: true },
            (SampleKind::Histogram, _) => PointData::Histogram { of_window: false },
            (SampleKind::Counter, _) => PointData::Sum {
                of_window: false,
                is_monotonic: true,
            },
            (
                _,
                Some((
                    Temporality::Window,
                    FamilyShape {
                        merge: MergeRule::Sum,
                        counts,
                        ..
                    },
                )),
            ) => PointData::Sum {
                of_window: true,
                is_monotonic: *counts,
            },
            _ => PointData::Gauge,
        };
        Self {
            name: family.name.to_owned(),
            help: family.help.to_string(),
            unit,
            data,
        }
    }

    /// Makes the head of a gauge about the window itself.
    pub fn of_window(name: &str, unit: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            help: String::new(),
            unit,
            data: PointData::Gauge,
        }
    }

    /// Returns the point with these samples, for the time of the window from `start` to `end`.
    pub fn point(self: &Arc<Self>, samples: &SamplePoint<'_>, [start, end]: [u64; 2]) -> OtlpPoint {
        let first = &samples.samples[0];
        let attributes = first
            .labels_of_point()
            .map(|(name, value)| attribute(name, value))
            .collect::<Vec<_>>();
        let start = match self.data {
            PointData::Sum {
                of_window: true, ..
            }
            | PointData::Histogram { of_window: true } => start,
            // The start is not known, which OTLP expresses as 0.
            PointData::Sum { .. } | PointData::Histogram { .. } | PointData::Gauge => 0,
        };
        let value = match self.data {
            PointData::Histogram { .. } => {
                PointValue::Histogram(histogram(&samples.samples, attributes, [start, end]))
            }
            PointData::Sum { .. } | PointData::Gauge => {
                PointValue::Number(number(first.number, attributes, [start, end]))
            }
        };
        OtlpPoint {
            head: Arc::clone(self),
            value,
        }
    }

    /// Returns a metric that has no points yet.
    pub fn metric(&self) -> Metric {
        let temporality = |of_window| match of_window {
            true => AggregationTemporality::Delta.into(),
            false => AggregationTemporality::Cumulative.into(),
        };
        let data = match self.data {
            PointData::Gauge => metric::Data::Gauge(Gauge::default()),
            PointData::Sum {
                of_window,
                is_monotonic,
            } => metric::Data::Sum(Sum {
                aggregation_temporality: temporality(of_window),
                is_monotonic,
                data_points: Vec::new(),
            }),
            PointData::Histogram { of_window } => metric::Data::Histogram(Histogram {
                aggregation_temporality: temporality(of_window),
                data_points: Vec::new(),
            }),
        };
        Metric {
            name: self.name.clone(),
            description: self.help.clone(),
            unit: self.unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }
}

/// Adds a point to a metric with the same head.
pub fn add(metric: &mut Metric, value: &PointValue) {
    match (&mut metric.data, value) {
        (Some(metric::Data::Gauge(gauge)), PointValue::Number(point)) => {
            gauge.data_points.push(point.clone());
        }
        (Some(metric::Data::Sum(sum)), PointValue::Number(point)) => {
            sum.data_points.push(point.clone());
        }
        (Some(metric::Data::Histogram(histogram)), PointValue::Histogram(point)) => {
            histogram.data_points.push(point.clone());
        }
        _ => {}
    }
}

/// Returns an attribute with a text.
pub fn attribute(name: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue {
        value: Some(any_value::Value::StringValue(value.to_owned())),
    });
    KeyValue {
        key: name.to_owned(),
        value,
        ..KeyValue::default()
    }
}

/// Returns the shape of the number in a sample, with the quantity that it counts.
fn found<'a>(
    family: &SampleFamily<'_>,
    sample: &NamedSample<'_>,
    shape: &'a WindowShape,
) -> Option<(Temporality, &'a FamilyShape)> {
    let direction = sample.label("direction")?;
    let of_direction = shape
        .metrics
        .iter()
        .filter(|metric| metric.direction.name() == direction);
    let mut families = of_direction.flat_map(|metric| {
        metric
            .families
            .iter()
            .map(|family| (metric.reading, family))
    });
    families
        .find(|(_, found)| found.name.strip_suffix("_total").unwrap_or(&found.name) == base(family))
}

fn base<'a>(family: &SampleFamily<'a>) -> &'a str {
    family.name.strip_suffix("_total").unwrap_or(family.name)
}

/// Returns a unit as UCUM writes it.
fn unit(word: &str) -> &'static str {
    match word {
        "bytes" => "By",
        "seconds" => "s",
        "packets" => "{packet}",
        _ => "",
    }
}

/// Returns the point of a number with all its digits: as an integer if the number is an integer.
fn number(number: &str, attributes: Vec<KeyValue>, [start, end]: [u64; 2]) -> NumberDataPoint {
    let value = match number.parse() {
        Ok(integer) => number_data_point::Value::AsInt(integer),
        Err(_) => number_data_point::Value::AsDouble(number.parse().unwrap_or(f64::NAN)),
    };
    NumberDataPoint {
        attributes,
        start_time_unix_nano: start,
        time_unix_nano: end,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}

/// Returns the point of a histogram from its samples. In the samples, the count of each bucket
/// includes all buckets before it.
fn histogram(
    samples: &[NamedSample<'_>],
    attributes: Vec<KeyValue>,
    [start, end]: [u64; 2],
) -> HistogramDataPoint {
    let mut point = HistogramDataPoint {
        attributes,
        start_time_unix_nano: start,
        time_unix_nano: end,
        ..HistogramDataPoint::default()
    };
    for sample in samples {
        let Some(bound) = sample.label("le") else {
            if sample.name.ends_with("sum") {
                point.sum = Some(sample.float());
            }
            continue;
        };
        let count: u64 = sample
            .number
            .parse()
            .unwrap_or_else(|_| sample.float() as u64);
        point.bucket_counts.push(count.saturating_sub(point.count));
        point.count = count;
        if let Ok(bound) = bound.parse::<f64>()
            && bound.is_finite()
        {
            point.explicit_bounds.push(bound);
        }
    }
    point
}
