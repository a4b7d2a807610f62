//! Network namespaces and interfaces.

pub mod addresses;
pub mod cgroups;
pub mod exactness;
pub mod interface;
pub mod keeper;
pub mod netns;
pub mod offloads;
pub mod patience;
pub mod pods;
pub mod rtnl;
pub mod watch;
