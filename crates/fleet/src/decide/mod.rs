//! Decisions that follow from an object, its status and the reports of nodes.

pub mod conditions;
pub mod over_fleet;
pub mod probe;
pub mod rule;
