//! Network namespaces and interfaces.

pub mod interface;
pub mod netns;
pub mod patience;
pub mod rtnl;
pub mod watch;
