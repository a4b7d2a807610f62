//! `twinprobe rules`, a file for each of its commands.

pub mod document;
pub mod library;
pub mod manage;
pub mod rules;
pub mod test;
