//! Commands that need no daemon.

pub mod completions;
pub mod convert;
pub mod man;
pub mod probes;
pub mod stream;
