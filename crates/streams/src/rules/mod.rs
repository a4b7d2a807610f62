//! Rules over the windows of many nodes.

mod acting;
pub mod alone;
pub mod changes;
pub mod check;
pub mod clear;
pub mod document;
pub mod lane;
pub mod members;
pub mod outbox;
pub mod periods;
pub mod shapes;
pub mod signing;
pub mod standing;
