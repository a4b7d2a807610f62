//! The ways of a probe into the kernel and out of it.

pub mod attach;
pub mod follow;
pub mod history;
pub mod load;
pub mod loaded;
pub mod restore;
pub mod watches;
