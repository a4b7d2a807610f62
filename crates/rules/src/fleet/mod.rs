//! Rules over the windows of many nodes.

pub mod merged;
pub mod rule;
