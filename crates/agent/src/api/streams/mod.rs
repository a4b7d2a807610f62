//! Answers that stay open: events of probes, and changes of the daemon.

pub mod body;
pub mod changes;
pub mod events;
