//! Sources in the dialect of BCC: their definitions, the function that sees the packets, and the
//! macros for the header of the dialect.

pub mod calls;
pub mod dialect;
pub mod entry;
pub mod scan;
pub mod token;

#[cfg(test)]
mod tests;
