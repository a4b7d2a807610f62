//! The names of families: types, units, and metrics that need the same name.

pub mod collisions;
pub mod family;
pub mod units;
