//! Trials: at its start the daemon tries the operations that this kernel may have, and before a program is attached, the
//! program.

pub mod cost;
mod frames;
pub mod maps;
pub mod programs;
mod prologue;
mod run;
mod statistics;
