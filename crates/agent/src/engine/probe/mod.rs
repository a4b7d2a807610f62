//! One probe: its configuration, its running programs, and its metrics.

pub mod clashes;
pub mod closing;
pub mod entries;
pub mod exactness;
pub mod lease;
pub mod probe;
pub mod retained;
pub mod running;
pub mod status;
