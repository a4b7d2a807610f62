//! Route netlink: requests and answers. The crate `rtnetlink` is not used, because it reads answers
//! in a task. Here, a thread that has entered a namespace must itself send and read, with a
//! deadline.

pub mod filter;
pub mod peers;
pub mod socket;
pub mod traffic;
pub mod xdp;
