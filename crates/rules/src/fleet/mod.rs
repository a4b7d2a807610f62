//! Rules over the windows of many nodes.

pub mod merged;
pub mod object;
pub mod rule;
