//! Requests with captures.

pub mod parts;
pub mod replay;
pub mod rule;
