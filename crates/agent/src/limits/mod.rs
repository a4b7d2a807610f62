//! The limits of what requests may take of this host. Each is an option of `serve`, and each refusal names its option.

pub mod descriptors;
pub mod ledger;
pub mod options;
pub mod queue;
pub mod streams;
