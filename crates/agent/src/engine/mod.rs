//! The probes of this daemon, and everything that is done with them.

pub mod capabilities;
pub mod clock;
pub mod conditions;
pub mod cost;
pub mod deploy;
pub mod engine;
pub mod error;
pub mod events;
pub mod placement;
pub mod probe;
pub mod replay;
pub mod turns;
pub mod window;
