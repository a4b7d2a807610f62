//! The journal of the rows that are taken out of maps while packets may change the maps.

pub mod batch;
pub mod drain;
pub mod fifo;
pub mod journal;
pub mod segment;
