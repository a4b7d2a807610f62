//! Route netlink: requests and answers.

pub mod filter;
pub mod socket;
pub mod traffic;
pub mod xdp;
