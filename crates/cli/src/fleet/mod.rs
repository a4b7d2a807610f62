//! The daemons to which commands talk.

pub mod answers;
pub mod fleet;
pub mod servers;
pub mod session;
