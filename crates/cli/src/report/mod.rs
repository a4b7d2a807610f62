//! Reports on stderr: refusals with the lines that they are about, and advice.

pub mod diagnostic;
pub mod reporter;
pub mod words;
