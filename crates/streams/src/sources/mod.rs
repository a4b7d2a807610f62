//! The daemons that windows come from.

pub mod credentials;
pub mod daemon;
pub mod kubernetes;
pub mod roster;
pub mod slices;
