//! The windows of a probe, from their closing to their delivery.

pub mod collect;
pub mod delivery;
pub mod kept;
pub mod live;
pub mod read;
pub mod schedule;
pub mod scrape;
pub mod ticks;
pub mod together;
pub mod turn;
