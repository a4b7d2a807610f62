//! Trials. At its start the daemon tries the operations that this kernel may have. Before a program
//! is attached, the daemon tries the program. A replay runs a program on the packets of a capture.

pub mod cost;
mod frames;
pub mod maps;
pub mod options;
pub mod programs;
mod prologue;
pub mod replay;
mod run;
mod statistics;
