//! Commands that use no daemon, but the compiler, the kernel or the store directly.

pub mod build;
pub mod check;
pub mod command;
pub mod doctor;
pub mod host;
pub mod store;
pub mod token;
