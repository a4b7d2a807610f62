//! Rules with `scope: fleet`: the operator reads the windows of all nodes, judges them together,
//! and acts at daemons.

pub mod options;
pub mod runs;
pub mod settle;
