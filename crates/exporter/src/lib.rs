//! Raw map contents to documents: decode by layout, aggregate PERCPU values, encode. Pure: no IO, no kernel.
#![forbid(unsafe_code)]

mod accumulate;
mod aggregate;
mod decode;
mod document;
mod encode;
mod leaf;
mod plans;

pub use accumulate::{Accumulator, UnknownField};
pub use decode::{Bits, Decoder, Field, Plan, Scalar, ValueSink, rfc3339};
pub use document::{Document, Metric, MetricTable};
pub use encode::{DocumentEncoder, Encoded, EventEncoder, PageEncoder, Progress, encode};
pub use plans::Plans;
// The vocabulary stands in `ebpf-common`; the callers take it from there one by one.
pub use twinprobe_ebpf_common::{
    Aggregation, Context, Direction, Format, Head, MergeRule, MergeRules, Temporality as Reading, Window,
};
