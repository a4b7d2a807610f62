//! Trials: at its start the daemon tries the operations that this kernel may have.

pub mod maps;
pub mod programs;
