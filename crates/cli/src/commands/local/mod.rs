//! Commands that need no daemon.

pub mod build;
pub mod check;
pub mod completions;
pub mod convert;
pub mod doctor;
pub mod host;
pub mod man;
pub mod probes;
pub mod token;
