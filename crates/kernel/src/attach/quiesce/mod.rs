//! Grace periods, one file for each method.

pub mod map_in_map;
pub mod membarrier;
pub mod method;
pub mod quiescer;
pub mod sweep;
pub mod worker;
