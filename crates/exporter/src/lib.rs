//! Raw map contents to documents: decode by layout, aggregate PERCPU values, encode. Pure: no IO, no kernel.
#![forbid(unsafe_code)]

mod accumulate;
mod aggregate;
mod decode;
mod document;
mod encode;
mod leaf;
mod plans;

pub use accumulate::{Accumulator, MergeRule, MergeRules, UnknownField};
pub use aggregate::Aggregation;
pub use decode::{Bits, Decoder, Field, Plan, Scalar, ValueSink, rfc3339};
pub use document::{Context, Direction, Document, Head, Metric, MetricTable, Reading, Window};
pub use encode::{DocumentEncoder, Encoded, EventEncoder, Format, PageEncoder, Progress, encode};
pub use plans::Plans;
