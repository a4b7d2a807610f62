//! The open window of a probe: its metrics, what they have counted so far, and its closing.

pub mod base;
pub mod close;
pub mod completeness;
pub mod group;
pub mod metric;
pub mod more;
pub mod open;
pub mod sum;
