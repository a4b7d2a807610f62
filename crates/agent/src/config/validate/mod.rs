//! TODO

pub mod direction;
pub mod findings;
pub mod metric;
pub mod names;
pub mod probe;
pub mod window;
