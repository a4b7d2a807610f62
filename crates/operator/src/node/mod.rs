//! The agent beside each daemon: it reads the node's assignments, carries them out and reports.

pub mod agent;
mod due;
mod folder;
mod follow;
pub mod options;
mod pods;
mod report;
mod rule;
mod server;
mod services;
mod settle;
