//! The metrics of a stream about itself.

pub mod meter;
pub mod page;
pub mod rules;
