//! One file per command.

pub mod apply;
pub mod capabilities;
pub mod delete;
pub mod events;
pub mod get;
pub mod list;
pub mod metrics;
pub mod token;
pub mod validate;
pub mod watch;
pub mod windows;
