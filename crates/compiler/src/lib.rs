//! Compilation of eBPF C to objects by a confined clang.

#![deny(unsafe_code)]

mod bcc;
mod beside;
mod child;
mod compile;
mod confine;
mod diagnostics;
mod discover;
mod headers;
mod known;
mod limits;
mod object;
mod sandbox;
mod toolchain;
mod vmlinux;

pub use self::bcc::scan::declared;
pub use self::compile::Compiler;
pub use self::limits::CompileLimits;
pub use self::object::CompiledObject;
pub use self::toolchain::{CompilerOptions, Toolchain};
