//! A parser of the BPF Type Format: it turns the type information of the kernel and clang into
//! [`Layout`]s.
//!
//! The input comes from a client's source: no blob may make the parser panic, loop, or take
//! disproportionate memory or stack. aya-obj's parser keeps the types and their members to itself.

pub mod blob;
pub mod error;
pub mod header;
pub mod named;
pub mod parse;
pub mod resolve;
pub mod section;
pub mod types;

#[cfg(test)]
mod tests;
