//! Commands that try a probe without attaching it.

pub mod bench;
pub mod choice;
pub mod propose;
pub mod replay;
