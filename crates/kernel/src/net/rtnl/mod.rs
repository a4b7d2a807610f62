//! Route netlink: requests and answers. Not by `rtnetlink`: that crate reads answers in a task, and here a thread that has
//! entered a namespace sends and reads by itself, under a deadline.

pub mod filter;
pub mod peers;
pub mod socket;
pub mod traffic;
pub mod xdp;
