//! The objects of a fleet: what people ask for, what nodes are told, what nodes report. The operator makes the kinds of the API
//! group `twinprobe.dev/v1alpha1` of them; `twinprobe fleet` reads the same documents from files.

pub mod assignment;
pub mod overview;
pub mod report;
pub mod spec;
pub mod status;
