//! One file per command.

pub mod apply;
pub mod delete;
pub mod get;
pub mod list;
pub mod metrics;
pub mod validate;
