//! What there is of the windows of a probe, and how it changes.

pub mod index;
pub mod plan;
pub mod restore;
pub mod state;
