//! Trials: the daemon tries at its start what this kernel can do.

pub mod maps;
pub mod programs;
