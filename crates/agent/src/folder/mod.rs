//! Files that somebody else changes: the directory of `--probes`, and files that the daemon reads
//! again after changes.

pub mod changes;
pub mod contents;
pub mod deploy;
pub mod whole;
