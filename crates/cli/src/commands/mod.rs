//! The commands that are longer than a few calls, one file for each.

pub mod apply;
pub mod build;
pub mod capabilities;
pub mod convert;
pub mod list;
pub mod probes;
pub mod replay;
pub mod token;
pub mod watch;
pub mod windows;
