//! The daemons that commands talk to.

pub mod fleet;
pub mod servers;
pub mod session;
