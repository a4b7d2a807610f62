//! The deployment of probes: loading, attaching, following interfaces, and restoring after a start.

pub mod admission;
pub mod attach;
pub mod cause;
pub mod examination;
pub mod expire;
pub mod follow;
pub mod lineage;
pub mod load;
pub mod loaded;
pub mod restore;
pub mod revisions;
pub mod tags;
pub mod trials;
