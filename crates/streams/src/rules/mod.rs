//! Rules over the windows of many nodes.

pub mod alone;
pub mod changes;
pub mod clear;
pub mod document;
pub mod lane;
pub mod members;
pub mod periods;
pub mod signing;
pub mod standing;
