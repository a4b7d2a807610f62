//! Commands that change what runs.

pub mod adjust;
pub mod apply;
pub mod delete;
pub mod diff;
pub mod entries;
pub mod files;
pub mod history;
pub mod names;
pub mod outcome;
pub mod revisions;
pub mod rollback;
pub mod send;
pub mod undo;
