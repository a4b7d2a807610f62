//! The daemons that commands talk to.

pub mod answers;
pub mod fleet;
pub mod servers;
pub mod session;
