//! Rules that run: each judges the windows of its probe, in order, and takes its actions. The crate `rules` decides; the
//! table `rules` of the store remembers.

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
