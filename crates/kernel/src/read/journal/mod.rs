//! The journal of what is taken out of maps while packets may change them.

pub mod batch;
pub mod drain;
pub mod fifo;
pub mod journal;
pub mod segment;
