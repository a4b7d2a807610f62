//! Compilation of eBPF C to objects by a confined clang.

pub mod child;
pub mod compile;
pub mod confine;
pub mod diagnostics;
pub mod discover;
pub mod limits;
pub mod sandbox;
pub mod toolchain;
