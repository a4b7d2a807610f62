//! The probes of this daemon, and all operations on them.

pub mod capabilities;
pub mod clock;
pub mod conditions;
pub mod cost;
pub mod deploy;
pub mod deployer;
pub mod engine;
pub mod error;
pub mod events;
pub mod placement;
pub mod pods;
pub mod probe;
pub mod reading;
pub mod readings;
pub mod registry;
pub mod replay;
pub mod series;
pub mod streaming;
pub mod turns;
pub mod window;
