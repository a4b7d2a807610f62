//! The commands, a file for each.

pub mod deploy;
pub mod fleet;
pub mod local;
pub mod read;
pub mod rules;
pub mod trial;
