//! The rows of a table that become samples.

pub mod distinct;
pub mod flat;
pub mod largest;
