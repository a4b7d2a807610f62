//! The ways to attach a program to an interface, one file each.

pub mod attachment;
pub mod clsact;
pub mod foreign;
pub mod target;
pub mod tcx;
pub mod xdp;
