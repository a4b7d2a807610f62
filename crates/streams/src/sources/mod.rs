//! The daemons that windows come from.

pub mod credentials;
pub mod daemon;
