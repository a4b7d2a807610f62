//! Restarts of the daemon: running probes stay, damaged ones are repaired, missing ones are
//! deployed again.

mod earlier;
mod ends;
mod held;
mod many;
mod outside;
mod repair;
mod restart;
mod restore;
mod start;
mod sums;
