//! The header of all types of a kernel, `vmlinux.h`, from its BTF: C in which each type comes after those that it needs.

pub mod declare;
pub mod names;
pub mod padding;
pub mod writer;

#[cfg(test)]
mod tests;
