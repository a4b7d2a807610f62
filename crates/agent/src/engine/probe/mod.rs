//! One probe: its configuration, its running programs, and its metrics.

pub mod clashes;
pub mod completeness;
pub mod entries;
pub mod exactness;
pub mod group;
pub mod lease;
pub mod metric;
pub mod more;
pub mod probe;
pub mod retained;
pub mod running;
pub mod status;
pub mod sum;
