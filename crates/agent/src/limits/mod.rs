//! The limits of the resources of this host that requests may use. Each is an option of `serve`, and each refusal
//! names its option.

pub mod descriptors;
pub mod ledger;
pub mod options;
pub mod queue;
pub mod spare;
pub mod streams;
