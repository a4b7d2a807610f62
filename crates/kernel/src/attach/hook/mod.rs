//! The ways to attach a program to an interface, one file each.

pub mod ahead;
pub mod attachment;
pub mod clsact;
pub mod error;
pub mod foreign;
pub mod hook_point;
pub mod libxdp;
pub mod loader;
pub mod manager;
pub mod tcx;
pub mod xdp;
pub mod xdp_request;
