//! The existing windows of a probe, and their changes.

pub mod chain;
pub mod index;
pub mod plan;
pub mod restore;
pub mod state;
