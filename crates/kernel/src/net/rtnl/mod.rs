//! Route netlink: requests and answers. The crate `rtnetlink` is not used: it reads answers in a task, but
//! here a thread that has entered a namespace sends and reads by itself, under a deadline.

pub mod filter;
pub mod peers;
pub mod socket;
pub mod traffic;
pub mod xdp;
