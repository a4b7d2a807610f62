//! The journal of what a map gives only once.

pub mod fifo;
pub mod journal;
pub mod segment;
