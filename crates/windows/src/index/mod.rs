//! The windows of a probe that are there, and their changes.

pub mod index;
pub mod plan;
pub mod restore;
pub mod state;
