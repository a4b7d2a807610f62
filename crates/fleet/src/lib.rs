//! How a probe reaches many nodes.

#![forbid(unsafe_code)]
