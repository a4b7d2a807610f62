//! The daemons of a file, which the daemon asks on behalf of its console: several nodes side by side.

pub mod ask;
pub mod book;
pub mod file;
pub mod options;
pub mod query;
