//! Rules over the windows of many nodes.

pub mod changes;
pub mod document;
pub mod lane;
pub mod members;
pub mod periods;
