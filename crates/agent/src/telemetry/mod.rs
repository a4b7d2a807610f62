//! The metrics of the daemon about itself.

pub mod cost;
pub mod counters;
pub mod files;
pub mod http;
pub mod page;
pub mod process;
pub mod registry;
pub mod rules;
