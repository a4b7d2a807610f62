//! Raw map contents to documents: decode by layout, aggregate PERCPU values, encode. Pure: no IO, no kernel.
#![forbid(unsafe_code)]

mod accumulate;
mod aggregate;
mod decode;
mod document;
mod encode;
mod leaf;

pub use accumulate::{Accumulator, MergeRule, MergeRules, UnknownField};
pub use aggregate::Aggregation;
pub use decode::{Bits, Decoder, Field, Plan, Scalar, ValueSink, rfc3339};
pub use document::{Context, Document, Metric, MetricTable, Window};
pub use encode::{Format, encode};
