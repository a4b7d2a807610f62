//! A probe's configuration as clients write it.

pub mod bounds;
pub mod document;
pub mod error;
pub mod parse;
pub mod place;
pub mod pods;
pub mod present;
