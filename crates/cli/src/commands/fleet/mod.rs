//! Commands that roll a probe out over many daemons, or give them a rule.

pub mod document;
pub mod engine;
pub mod fleet;
pub mod outcome;
pub mod rule;
pub mod survey;
