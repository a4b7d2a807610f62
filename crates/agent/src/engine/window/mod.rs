//! The windows of a probe, from their end to their clients.

pub mod base;
pub mod close;
pub mod collect;
pub mod delivery;
pub mod live;
pub mod read;
pub mod schedule;
pub mod scrape;
pub mod turn;
