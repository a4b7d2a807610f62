//! The command line: what an operator runs. `serve` is the daemon, the other commands talk to one.

pub mod args;
mod commands;
mod error;
mod files;
mod output;
pub mod run;
#[cfg(test)]
mod tests;
