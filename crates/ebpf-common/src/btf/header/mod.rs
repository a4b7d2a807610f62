//! The header of all types of a kernel, `vmlinux.h`, from its BTF. In this C source each type comes
//! after the types that it needs.

pub mod declare;
pub mod names;
pub mod padding;
pub mod writer;

#[cfg(test)]
mod tests;
