//! A probe's configuration as clients write it.

mod document;
mod parse;

pub use document::{
    ConfigDocument, DirectionDocument, MergeDocument, MetricDocument, Object, WindowDocument,
};
pub use parse::{ParseError, parse_document};
