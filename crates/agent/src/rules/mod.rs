//! The running of rules: each rule judges the windows of its probe, in order, and takes its
//! actions. The crate `rules` makes the decisions, and the table `rules` of the store records them.

pub mod actions;
pub mod ahead;
pub mod book;
mod changes;
mod check;
mod ending;
pub mod judge;
pub mod options;
pub mod outbox;
pub mod probes;
mod revisions;
pub mod runner;
pub mod templates;
pub mod trial;
