//! The way from the raw content of maps to documents. This crate decodes values by their layout,
//! aggregates PERCPU values, adds up windows, and writes the result in one of the formats. It does
//! no IO and does not depend on the kernel.
#![forbid(unsafe_code)]

mod accumulate;
mod aggregate;
mod cache;
mod decode;
mod encode;
mod exported;
mod largest;
mod metric;
mod numbers;
mod others;
mod shape;

pub use accumulate::{Accumulator, UnknownField};
pub use decode::decoder::Decoder;
pub use decode::fit::misfits;
pub use encode::document::document_encoder;
pub use encode::encoder::DocumentEncoder;
pub use encode::event::EventEncoder;
pub use encode::openmetrics::info::{approximations, origins, pods};
pub use encode::openmetrics::names::collisions::{Collision, collisions};
pub use encode::openmetrics::page_encoder::PageEncoder;
pub use encode::page_format::{PageConversion, PageFormat};
pub use exported::{ExportedNumber, NoSamples};
pub use largest::LargestRows;
pub use metric::Metric;
pub use numbers::{NoNumber, Number, NumberColumn, Numbers};
pub use others::Others;
pub use shape::window_shape;
