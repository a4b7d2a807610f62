//! Experiments on events: their cost on the way from a packet to a client.

pub mod actions;
pub mod delivery;
pub mod hooks;
pub mod stages;
mod syscount;
