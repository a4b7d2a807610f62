//! The confinement of the compiler.

#![allow(
    unsafe_code,
    reason = "rules for a child process are set between fork and exec"
)]

pub mod confine;
mod filter;
