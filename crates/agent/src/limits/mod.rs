//! The limits for this host's resources that requests may use. Each limit is an option of `serve`,
//! and each refusal names the option.

pub mod descriptors;
pub mod ledger;
pub mod options;
pub mod queue;
pub mod spare;
pub mod streams;
