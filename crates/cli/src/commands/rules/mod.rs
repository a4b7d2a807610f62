//! `twinprobe rules`, a file for each of its commands.

pub mod document;
pub mod library;
pub mod manage;
pub mod revisions;
pub mod rules;
pub mod templates;
pub mod test;
