//! A parser of the BPF Type Format: it turns the type information of the kernel and clang into [`Layout`]s.
//!
//! The input is compiled from source that a client sent: no blob may make it panic, loop, or take memory or
//! stack out of proportion. aya-obj's parser keeps the types and their members to itself.

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
