//! Replays of captures.

pub mod replay;
pub mod replayed;
pub mod windows;
