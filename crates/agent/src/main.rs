//! `twinprobe`: the daemon and its client in one binary.

mod client;
mod compiler;
mod config;
mod report;

fn main() {}
