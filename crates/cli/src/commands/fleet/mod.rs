//! Commands that roll a probe out over many daemons.

pub mod document;
pub mod engine;
pub mod fleet;
pub mod outcome;
pub mod survey;
