//! Rules that several parts of a configuration share, and those of lists and of names.

pub mod files;
pub mod fill;
pub mod findings;
pub mod labels;
pub mod names;
pub mod pods;
pub mod shared;
