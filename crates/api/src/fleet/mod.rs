//! The objects of a fleet: the desired state, the assignments of nodes, the reports of nodes. The
//! operator makes the kinds of the API group `twinprobe.dev/v1alpha1` from them; `twinprobe fleet`
//! reads the same documents from files.

pub mod assignment;
pub mod overview;
pub mod report;
pub mod spec;
pub mod status;
