//! A probe's configuration as clients write it.

pub mod document;
pub mod parse;
