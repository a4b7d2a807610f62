//! Commands that show probes and their measurements.

pub mod capabilities;
pub mod events;
pub mod follower;
pub mod get;
pub mod list;
pub mod merge;
pub mod metrics;
pub mod names;
pub mod picture;
pub mod series;
pub mod watch;
pub mod windows;
