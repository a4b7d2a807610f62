//! The agent beside each daemon: what a node is told, what it does, what it reports.

pub mod agent;
mod due;
mod folder;
mod follow;
pub mod options;
mod pods;
mod rule;
mod server;
mod settle;
