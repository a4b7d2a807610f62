//! Commands that change what runs.

pub mod apply;
pub mod delete;
pub mod diff;
pub mod files;
pub mod names;
pub mod outcome;
pub mod revisions;
pub mod rollback;
pub mod send;
pub mod undo;
