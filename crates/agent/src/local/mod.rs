//! Commands that need no daemon, but the compiler, the kernel or the store.

pub mod build;
pub mod check;
pub mod command;
pub mod doctor;
pub mod host;
pub mod store;
pub mod token;
