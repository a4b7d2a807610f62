//! The pods of this node: their interfaces, and the probes that follow them.

pub mod follow;
pub mod names;
pub mod table;
