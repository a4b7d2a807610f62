//! The command line: what an operator runs. `serve` is the daemon, the other commands talk to one.

pub mod args;
pub mod commands;
pub mod credentials;
pub mod error;
pub mod files;
pub mod library;
pub mod output;
pub mod run;
