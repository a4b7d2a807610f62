//! The confinement of the compiler.

pub mod confine;
mod filter;
