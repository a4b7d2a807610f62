//! The interfaces and namespaces that a configuration means.

pub mod placement;
pub mod wanted;
