//! The messages of remote write 1.0, as `prometheus/prompb/remote.proto` and `types.proto` of
//! Prometheus have them.

use std::sync::Arc;

use prost::Message;

/// A message.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<WrittenSeries>,
    #[prost(message, repeated, tag = "3")]
    pub metadata: Vec<WrittenMetadata>,
}

/// Samples of one series, by time.
#[derive(Clone, PartialEq, Message)]
pub struct WrittenSeries {
    /// The labels, by name; the name of the series is the label `__name__`.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<WrittenLabel>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<WrittenSample>,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Message)]
pub struct WrittenLabel {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct WrittenSample {
    #[prost(double, tag = "1")]
    pub value: f64,
    /// The time in milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub time: i64,
}

/// The description of a family.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WrittenMetadata {
    /// A number of the enumeration `MetricType`.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub family: String,
    #[prost(string, tag = "4")]
    pub help: String,
    #[prost(string, tag = "5")]
    pub unit: String,
}

/// A sample, or the metadata of a family.
pub enum RemotePoint {
    Sample {
        labels: Vec<WrittenLabel>,
        sample: WrittenSample,
        family: Arc<WrittenMetadata>,
    },
    /// The metadata of a family. Only messages of 1.0 separate it from the samples.
    Family(Arc<WrittenMetadata>),
}
