//! The messages of `io.prometheus.client`, as far as a page needs them. The numbers of fields are
//! those in `metrics.proto` of Prometheus.

use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub struct FamilyMessage {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub help: Option<String>,
    #[prost(enumeration = "TypeNumber", optional, tag = "3")]
    pub kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub metrics: Vec<SampleMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum TypeNumber {
    Counter = 0,
    Gauge = 1,
    Untyped = 3,
    Histogram = 4,
    GaugeHistogram = 5,
}

/// The labels and the number, or the histogram, of one series.
#[derive(Clone, PartialEq, Message)]
pub struct SampleMessage {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<LabelMessage>,
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<NumberMessage>,
    #[prost(message, optional, tag = "3")]
    pub counter: Option<NumberMessage>,
    #[prost(message, optional, tag = "5")]
    pub untyped: Option<NumberMessage>,
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<HistogramMessage>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct LabelMessage {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// The message for `Gauge`, `Counter` and `Untyped`, which have the same form.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct NumberMessage {
    #[prost(double, optional, tag = "1")]
    pub value: Option<f64>,
}

/// Buckets with bounds. For native histograms there are also the counts of buckets whose bounds are
/// powers of two.
#[derive(Clone, PartialEq, Message)]
pub struct HistogramMessage {
    #[prost(uint64, optional, tag = "1")]
    pub sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub buckets: Vec<BucketMessage>,
    #[prost(sint32, optional, tag = "5")]
    pub schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub positive_spans: Vec<SpanMessage>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub positive_deltas: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct BucketMessage {
    #[prost(uint64, optional, tag = "1")]
    pub cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub upper_bound: Option<f64>,
}

/// Consecutive buckets, and their distance from the previous ones.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SpanMessage {
    #[prost(sint32, optional, tag = "1")]
    pub offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub length: Option<u32>,
}
