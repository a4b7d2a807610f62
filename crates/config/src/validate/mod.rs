//! The rules of a configuration, one file for each part of it.

pub mod direction;
pub mod files;
mod fill;
pub mod findings;
mod interfaces;
pub mod labels;
pub mod metric;
pub mod names;
pub mod pods;
pub mod probe;
pub mod shared;
pub mod window;
