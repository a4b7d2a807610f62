//! The daemons that a file lists. The daemon sends requests to them on behalf of its console, which
//! shows several nodes side by side.

pub mod ask;
pub mod book;
pub mod file;
pub mod options;
pub mod query;
