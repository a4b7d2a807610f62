//! The names of families: types, units, sums of histograms, and metrics that need the same name.

pub mod collisions;
pub mod family;
pub mod sums;
pub mod units;
