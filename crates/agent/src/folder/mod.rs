//! Files that somebody else changes: the directory of `--probes`, and what is read again.

pub mod changes;
pub mod contents;
pub mod deploy;
pub mod whole;
