//! The live view of all probes: `twinprobe top`.

pub mod counting;
pub mod draw;
pub mod feed;
pub mod fit;
pub mod keys;
pub mod names;
pub mod page;
pub mod series;
pub mod state;
pub mod top;
