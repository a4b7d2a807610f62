//! Steps at which tests end, fail or hold the daemon, so that they can examine the next daemon. A
//! binary without the feature `points`, like each shipped binary, does nothing at them. The crate
//! `fail` has no action that ends the process as a SIGKILL would, and none that waits for a file.

#![forbid(unsafe_code)]

#[cfg_attr(not(feature = "points"), path = "none.rs")]
pub mod crash;
