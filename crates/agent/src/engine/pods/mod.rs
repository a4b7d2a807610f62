//! The pods of this node: their interfaces, and the probes that follow them. Also the Services of
//! the cluster, for names.

pub mod follow;
pub mod names;
pub mod options;
pub mod owners;
pub mod services;
pub mod table;
